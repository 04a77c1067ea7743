#include "shoal/vector/vector_env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "shoal/env/registry.h"
#include "shoal/os/limits/affinity.h"
#include "shoal/process/launch/worker_main.h"
#include "shoal/vector/async/async_local_vector_env.h"
#include "shoal/vector/async/pool_vector_env.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/local/serial_vector_env.h"
#include "shoal/vector/local/thread_vector_env.h"
#include "shoal/vector/native/native_stepper.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/worker_program/native_worker.h"

namespace shoal::vector {
namespace {

int choose_num_workers(const Options& options) {
  if (options.num_envs < 1) {
    throw InvalidArgument(fmt::format("num_envs is {}; it must be at least 1", options.num_envs));
  }
  if (options.num_workers < 0 || options.num_workers > options.num_envs) {
    throw InvalidArgument(
        fmt::format("num_workers is {}; it must be between 1 and num_envs={}, or 0 for one per CPU",
                    options.num_workers, options.num_envs));
  }
  if (options.num_workers > 0) return options.num_workers;
  return std::min(options.num_envs, os::allowed_cpus());
}

// Out of the options: engines keep those, and let go of the launcher when they are closed.
std::shared_ptr<process::Launcher> take_launcher(Options& options) {
  if (options.launcher) return std::exchange(options.launcher, nullptr);
  process::LaunchOptions launch;
  launch.interpreter = process::native_interpreter();
  return process::Launcher::create(std::move(launch));
}

std::unique_ptr<VectorEnv> create_in_processes(std::string_view id, int num_workers,
                                               Options options) {
  env::find_env(id);  // an unknown id is named here, not by a worker
  auto launcher = take_launcher(options);
  return std::make_unique<ProcessVectorEnv>(
      std::move(launcher),
      native_worker_specs(id, options.num_envs, num_workers, options.env_args, options.setup),
      options);
}

std::unique_ptr<VectorEnv> create_async(std::string_view id, int num_workers, Options options) {
  if (options.backend == Backend::kProcess) {
    env::find_env(id);  // an unknown id is named here, not by a worker
    auto pool = std::make_shared<WorkerPool>(take_launcher(options),
                                             native_pool_specs(num_workers, options.setup),
                                             PoolOptions{.pin_workers = options.pin_workers,
                                                         .cpus = options.cpus,
                                                         .shared_state = options.shared_state});
    std::vector<PoolVectorEnv::Payload> payloads;
    for (int w = 0; w < num_workers; ++w) {
      payloads.push_back({envs_of_worker(options.num_envs, num_workers, w),
                          native_pool_payload(id, options.env_args)});
    }
    return std::make_unique<PoolVectorEnv>(std::move(pool), std::move(payloads), options, true);
  }
  const bool serial = options.backend == Backend::kSerial;
  // More threads than CPUs would only take turns.
  const int workers = serial ? 1 : std::min(num_workers, os::allowed_cpus());
  return std::make_unique<AsyncLocalVectorEnv>(
      make_native_steppers(id, options.num_envs, workers, options.env_args, options.shared_state),
      options);
}

std::unique_ptr<VectorEnv> create_as_asked(std::string_view id, const Options& options) {
  const int num_workers = choose_num_workers(options);
  if (options.batch_size != 0 || options.cohorts != 0) {
    return create_async(id, num_workers, options);
  }
  Backend backend = options.backend;
  if (backend == Backend::kAuto) backend = num_workers > 1 ? Backend::kThread : Backend::kSerial;
  switch (backend) {
    case Backend::kProcess:
      return create_in_processes(id, num_workers, options);
    case Backend::kThread:
      return std::make_unique<ThreadVectorEnv>(
          make_native_steppers(id, options.num_envs, 1, options.env_args, options.shared_state),
          options.autoreset_mode, num_workers);
    case Backend::kSerial:
    case Backend::kAuto:
      break;
  }
  return std::make_unique<SerialVectorEnv>(
      make_native_steppers(id, options.num_envs, 1, options.env_args, options.shared_state),
      options.autoreset_mode);
}

}  // namespace

std::unique_ptr<VectorEnv> VectorEnv::create(std::string_view id, const Options& options) {
  std::unique_ptr<VectorEnv> envs = create_as_asked(id, options);
  if (auto* boarded = dynamic_cast<Boarded*>(envs.get())) boarded->board().set_title(id);
  return envs;
}

Batch VectorEnv::reset(std::uint64_t seed) {
  std::vector<std::optional<std::uint64_t>> seeds;
  for (int i = 0; i < num_envs(); ++i) seeds.emplace_back(seed + static_cast<std::uint64_t>(i));
  return reset(seeds);
}

std::span<const std::byte> VectorEnv::info(int) { return {}; }

std::vector<std::byte> VectorEnv::request(int, std::span<const std::byte>,
                                          std::optional<std::chrono::nanoseconds>) {
  throw InvalidArgument("request: these environments have no attributes or calls to ask for");
}

void VectorEnv::request_async(std::span<const std::vector<std::byte>>) { request(0, {}); }

std::vector<std::vector<std::byte>> VectorEnv::request_wait(
    std::optional<std::chrono::nanoseconds>) {
  throw InvalidState("request_wait: nothing was asked; call request_async() first");
}

Stats VectorEnv::stats() const { return {}; }

std::vector<WorkerHealth> VectorEnv::health() const {
  std::vector<WorkerHealth> all;
  for (const WorkerStats& worker : stats().workers) {
    WorkerHealth health;
    health.first_env = worker.first_env;
    health.num_envs = worker.num_envs;
    health.pid = ::getpid();
    health.rss_bytes = rss_of(health.pid);
    all.push_back(std::move(health));
  }
  return all;
}

void VectorEnv::close_within(std::chrono::milliseconds) noexcept { close(); }

}  // namespace shoal::vector
