// What a worker of a pool does from its start to its end: it serves the environments of every
// session that the pool opens in it.
//
// The same body runs in a process (the usual case) and, in tests, in a thread of the parent.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/env/batch_env.h"
#include "shoal/process/channel.h"
#include "shoal/process/entry.h"
#include "shoal/process/error_report.h"
#include "shoal/process/identity.h"
#include "shoal/process/launcher.h"
#include "shoal/process/worker_setup.h"
#include "shoal/vector/stepper.h"

namespace shoal::vector {

/// What a binding adds to the loop; before_park and after_park as in WorkerHooks.
struct PoolWorkerHooks {
  struct Opened {
    std::unique_ptr<Stepper> stepper;
    /// Describes the exception that is being handled; may be empty.
    std::function<process::ErrorReport()> describe_exception;
    std::function<void(const char* point)> pass;  // as AsyncWorkerHooks::pass
  };
  /// Builds `count` environments, the first of which is `first_env`, from a session's payload. What
  /// it throws is reported with describe_opening(), which may be empty.
  std::function<Opened(std::span<const std::byte> payload, int first_env, int count)> open;
  std::function<process::ErrorReport()> describe_opening;
  std::function<void()> before_park;
  std::function<void()> after_park;
};

/// Serves until the pool closes the channel or is gone.
void run_pool_worker(process::Channel& channel, const process::Identity& identity,
                     const PoolWorkerHooks& hooks);

inline constexpr std::string_view kNativePoolEntry = "native-pool";

/// The entry of pool workers for native environments.
int native_pool_entry(process::WorkerContext& context);
/// The payload of a session of `count` environments for such a worker.
std::vector<std::byte> native_pool_payload(std::string_view id, std::string_view env_args);
/// The environments of such a session, for the worker that this thread is.
std::unique_ptr<env::BatchEnv> native_pool_batch(std::span<const std::byte> payload, int count);
/// `num_workers` workers with that entry.
std::vector<process::WorkerSpec> native_pool_specs(int num_workers,
                                                   const process::WorkerSetup& setup = {});

}  // namespace shoal::vector
