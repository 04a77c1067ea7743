#include "shoal/vector/worker_program/native_worker.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "shoal/env/plugin.h"
#include "shoal/process/codec.h"
#include "shoal/process/identity/identity.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/process/supervise/stack_dump.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/native/native_stepper.h"
#include "shoal/vector/worker_program/pool_worker.h"

namespace shoal::vector {
namespace {

// A worker's payload: setup, plug-ins (their number, paths), and the payload of the session of a
// pool of rounds, or nothing.
std::vector<std::byte> worker_payload(const process::WorkerSetup& setup,
                                      std::span<const std::byte> session) {
  process::ByteWriter payload;
  setup.write(payload);
  const std::vector<std::string> plugins = env::loaded_plugins();
  payload.number(static_cast<std::uint32_t>(plugins.size()));
  for (const std::string& plugin : plugins) payload.text(plugin);
  payload.bytes(session);
  return payload.take();
}

}  // namespace

int native_pool_entry(process::WorkerContext& context) {
  process::install_stack_dump(true);
  const auto identity = process::receive_welcome(context);
  if (!identity) return 0;
  process::become(identity);
  process::ByteReader payload(context.payload);
  const auto gpu = process::WorkerSetup::read(payload).carry_out();
  for (auto plugins = payload.number<std::uint32_t>(); plugins > 0; --plugins) {
    env::load_plugin(payload.text());
  }
  const std::vector<std::byte> own = payload.bytes();
  const auto open = [&own](std::span<const std::byte> session, int, int count) {
    return PoolWorkerHooks::Opened{std::make_unique<NativeStepper>(native_pool_batch(
                                       session.empty() ? std::span(own) : session, count)),
                                   {},
                                   {}};
  };
  run_pool_worker(context.channel, *identity,
                  {.open = open, .describe_opening = {}, .before_park = {}, .after_park = {}});
  return 0;
}

std::vector<process::WorkerSpec> native_pool_specs(int num_workers,
                                                   const process::WorkerSetup& setup) {
  std::vector<process::WorkerSpec> specs(static_cast<std::size_t>(num_workers));
  for (std::size_t w = 0; w < specs.size(); ++w) {
    specs[w].name = fmt::format("worker {}", w);
    specs[w].entry = kNativePoolEntry;
    specs[w].payload = worker_payload(setup, {});
  }
  return specs;
}

std::vector<std::byte> native_pool_payload(std::string_view id, std::string_view env_args) {
  process::ByteWriter payload;
  payload.text(id);
  payload.text(env_args);
  return payload.take();
}

std::unique_ptr<env::BatchEnv> native_pool_batch(std::span<const std::byte> payload, int count) {
  process::ByteReader reader(payload);
  const std::string id = reader.text();
  const std::string env_args = reader.text();
  return make_native_batch(process::this_worker(), id, count, env_args);
}

std::vector<process::WorkerSpec> native_worker_specs(std::string_view id, int num_envs,
                                                     int num_workers, std::string_view env_args,
                                                     const process::WorkerSetup& setup) {
  const std::vector<std::byte> session = native_pool_payload(id, env_args);
  std::vector<process::WorkerSpec> specs = native_pool_specs(num_workers, setup);
  for (std::size_t w = 0; w < specs.size(); ++w) {
    specs[w].num_envs = envs_of_worker(num_envs, num_workers, static_cast<int>(w));
    specs[w].payload = worker_payload(setup, session);
  }
  return specs;
}

}  // namespace shoal::vector
