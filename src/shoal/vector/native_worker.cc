#include "shoal/vector/native_worker.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/env/plugin.h"
#include "shoal/env/registry.h"
#include "shoal/process/codec.h"
#include "shoal/process/stack_dump.h"
#include "shoal/process/welcome.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/native_stepper.h"
#include "shoal/vector/worker_loop.h"

namespace shoal::vector {

// The payload: setup, plug-ins (their number, paths), id, arguments of the environment as JSON,
// number of environments.
int native_vector_entry(process::WorkerContext& context) {
  const auto identity = process::receive_welcome(context);
  if (!identity) return 0;
  process::become(identity);
  process::ByteReader payload(context.payload);
  const auto gpu = process::WorkerSetup::read(payload).carry_out();
  for (auto plugins = payload.number<std::uint32_t>(); plugins > 0; --plugins) {
    env::load_plugin(payload.text());
  }
  const std::string id = payload.text();
  const std::string env_args = payload.text();
  const auto count = payload.number<std::int32_t>();
  process::install_stack_dump(true);
  NativeStepper stepper(make_native_batch(*identity, id, count, env_args));
  run_worker(context.channel, stepper);
  return 0;
}

std::vector<process::WorkerSpec> native_worker_specs(std::string_view id, int num_envs,
                                                     int num_workers, std::string_view env_args,
                                                     const process::WorkerSetup& setup) {
  std::vector<process::WorkerSpec> specs;
  for (int w = 0; w < num_workers; ++w) {
    process::WorkerSpec spec;
    spec.name = fmt::format("worker {}", w);
    spec.entry = kNativeVectorEntry;
    spec.num_envs = envs_of_worker(num_envs, num_workers, w);
    process::ByteWriter payload;
    setup.write(payload);
    const std::vector<std::string> plugins = env::loaded_plugins();
    payload.number(static_cast<std::uint32_t>(plugins.size()));
    for (const std::string& plugin : plugins) payload.text(plugin);
    payload.text(id);
    payload.text(env_args);
    payload.number(static_cast<std::int32_t>(spec.num_envs));
    spec.payload = payload.take();
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace shoal::vector
