#include "shoal/vector/testing/backends.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "shoal/vector/async/async_local_vector_env.h"
#include "shoal/vector/async/pool_vector_env.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/local/serial_vector_env.h"
#include "shoal/vector/local/thread_vector_env.h"
#include "shoal/vector/native/native_stepper.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/testing/thread_launcher.h"
#include "shoal/vector/testing/toy_stepper.h"
#include "shoal/vector/worker_program/native_worker.h"

namespace shoal::vector::testing {
namespace {

std::vector<int> divide(int num_envs, int num_workers) {
  std::vector<int> counts;
  for (int w = 0; w < num_workers; ++w) counts.push_back(envs_of_worker(num_envs, num_workers, w));
  return counts;
}

std::unique_ptr<VectorEnv> in_process(Kind kind, std::vector<std::unique_ptr<Stepper>> steppers,
                                      const Options& options) {
  if (options.batch_size != 0 || options.cohorts != 0) {
    return std::make_unique<AsyncLocalVectorEnv>(std::move(steppers), options);
  }
  if (kind == Kind::kSerial) {
    return std::make_unique<SerialVectorEnv>(std::move(steppers), options.autoreset_mode);
  }
  return std::make_unique<ThreadVectorEnv>(std::move(steppers), options.autoreset_mode);
}

bool is_in_process(Kind kind) { return kind == Kind::kSerial || kind == Kind::kThread; }

}  // namespace

std::string name(Kind kind) {
  switch (kind) {
    case Kind::kSerial:
      return "Serial";
    case Kind::kThread:
      return "Thread";
    case Kind::kProcessAsThreads:
      return "ProcessAsThreads";
    case Kind::kFork:
      return "Fork";
    case Kind::kForkserver:
      return "Forkserver";
    case Kind::kSpawn:
      return "Spawn";
  }
  return "";
}

std::shared_ptr<process::Launcher> make_launcher(Kind kind) {
  if (kind == Kind::kProcessAsThreads) return std::make_shared<ThreadLauncher>(test_entries());
  process::LaunchOptions options;
  options.relay_output = false;
  if (kind == Kind::kFork) {
    options.method = process::StartMethod::kFork;
    auto hooks = std::make_shared<process::ForkHooks>();
    hooks->entries = test_entries();
    options.fork_hooks = std::move(hooks);
  } else {
    options.method =
        kind == Kind::kSpawn ? process::StartMethod::kSpawn : process::StartMethod::kForkserver;
    options.interpreter = {SHOAL_TOY_WORKER};
  }
  return process::Launcher::create(std::move(options));
}

std::unique_ptr<VectorEnv> make_toys(Kind kind, int num_envs, int num_workers,
                                     const Options& options) {
  const bool alone = kind == Kind::kSerial && (options.batch_size != 0 || options.cohorts != 0);
  const std::vector<int> counts = divide(num_envs, alone ? 1 : num_workers);
  if (is_in_process(kind)) {
    std::vector<std::unique_ptr<Stepper>> steppers;
    for (const int count : counts) steppers.push_back(std::make_unique<ToyStepper>(count));
    return in_process(kind, std::move(steppers), options);
  }
  if (options.batch_size != 0 || options.cohorts != 0) {
    return make_pool_toys(make_toy_pool(kind, num_workers), num_envs, options, "", true);
  }
  return std::make_unique<ProcessVectorEnv>(make_launcher(kind), toy_specs(counts), options);
}

std::shared_ptr<WorkerPool> make_toy_pool(Kind kind, int num_workers) {
  return std::make_shared<WorkerPool>(make_launcher(kind), toy_pool_specs(num_workers));
}

std::unique_ptr<VectorEnv> make_pool_toys(std::shared_ptr<WorkerPool> pool, int num_envs,
                                          const Options& options, std::string_view payload,
                                          bool owns_pool) {
  std::vector<PoolVectorEnv::Payload> payloads;
  for (const int count : divide(num_envs, pool->num_workers())) {
    payloads.push_back({count, bytes_of(payload)});
  }
  return std::make_unique<PoolVectorEnv>(std::move(pool), std::move(payloads), options, owns_pool);
}

std::unique_ptr<VectorEnv> make_native(Kind kind, std::string_view id, int num_envs,
                                       int num_workers, const Options& options) {
  if (kind == Kind::kThread) {
    return std::make_unique<ThreadVectorEnv>(
        make_native_steppers(id, num_envs, 1, options.env_args, options.shared_state),
        options.autoreset_mode, num_workers);
  }
  if (kind == Kind::kSerial) {
    return in_process(
        kind,
        make_native_steppers(id, num_envs, num_workers, options.env_args, options.shared_state),
        options);
  }
  return std::make_unique<ProcessVectorEnv>(
      make_launcher(kind), native_worker_specs(id, num_envs, num_workers, options.env_args),
      options);
}

Recorded record(const Batch& batch) {
  Recorded recorded;
  for (const shm::TensorView& leaf : batch.obs) {
    recorded.obs.emplace_back(leaf.data, leaf.data + leaf.bytes());
  }
  for (const shm::TensorView& leaf : batch.final_obs) {
    std::vector<std::byte> bytes(leaf.bytes());
    for (std::int64_t i = 0; i < leaf.rows; ++i) {
      if (batch.has_final[static_cast<std::size_t>(i)] == 0) continue;
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * leaf.row_bytes(), leaf.row_data(i),
                  leaf.row_bytes());
    }
    recorded.final_obs.push_back(std::move(bytes));
  }
  const auto copy = [](auto from, auto& to) { to.assign(from.begin(), from.end()); };
  copy(batch.reward, recorded.reward);
  copy(batch.terminated, recorded.terminated);
  copy(batch.truncated, recorded.truncated);
  copy(batch.reset, recorded.reset);
  copy(batch.fault, recorded.fault);
  copy(batch.has_final, recorded.has_final);
  return recorded;
}

void set_actions(VectorEnv& envs, const std::vector<std::int64_t>& actions) {
  const std::span<std::int64_t> row = envs.actions()[0].as<std::int64_t>();
  if (row.size() != actions.size()) throw std::logic_error("one action for each environment");
  std::copy(actions.begin(), actions.end(), row.begin());
}

}  // namespace shoal::vector::testing
