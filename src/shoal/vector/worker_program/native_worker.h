// The entry of worker processes that step native environments, and what the parent tells them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "shoal/env/batch_env.h"
#include "shoal/process/entry.h"
#include "shoal/process/identity/worker_setup.h"
#include "shoal/process/launcher.h"

namespace shoal::vector {

inline constexpr std::string_view kNativePoolEntry = "native-pool";

/// Serves the sessions of its pool (pool_worker.h).
int native_pool_entry(process::WorkerContext& context);

/// `num_workers` workers of a pool with that entry.
std::vector<process::WorkerSpec> native_pool_specs(int num_workers,
                                                   const process::WorkerSetup& setup = {});
/// The payload of a session of such a worker.
std::vector<std::byte> native_pool_payload(std::string_view id, std::string_view env_args);
/// The `count` environments of such a session, for the worker that this thread is.
std::unique_ptr<env::BatchEnv> native_pool_batch(std::span<const std::byte> payload, int count);

/// Workers of a pool of rounds that together hold `num_envs` environments of `id`, divided as evenly
/// as possible.
std::vector<process::WorkerSpec> native_worker_specs(std::string_view id, int num_envs,
                                                     int num_workers, std::string_view env_args,
                                                     const process::WorkerSetup& setup = {});

}  // namespace shoal::vector
