// The backends that a conformance test runs over, and the environments it runs on them.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "shoal/process/launcher.h"
#include "shoal/vector/vector_env.h"
#include "shoal/vector/workers/worker_pool.h"

namespace shoal::vector::testing {

enum class Kind { kSerial, kThread, kProcessAsThreads, kFork, kForkserver, kSpawn };

std::string name(Kind kind);

inline void PrintTo(Kind kind, std::ostream* out) { *out << name(kind); }

/// The backends whose workers are processes.
std::shared_ptr<process::Launcher> make_launcher(Kind kind);

/// `num_envs` toys on `num_workers` workers.
std::unique_ptr<VectorEnv> make_toys(Kind kind, int num_envs, int num_workers,
                                     const Options& options = {});

/// A pool of `num_workers` workers for toys, and toys in it; `payload` as for toy_pool_specs().
std::shared_ptr<WorkerPool> make_toy_pool(Kind kind, int num_workers);
std::unique_ptr<VectorEnv> make_pool_toys(std::shared_ptr<WorkerPool> pool, int num_envs,
                                          const Options& options = {},
                                          std::string_view payload = "", bool owns_pool = false);

/// `num_envs` native environments of `id` on `num_workers` workers.
std::unique_ptr<VectorEnv> make_native(Kind kind, std::string_view id, int num_envs,
                                       int num_workers, const Options& options = {});

/// A copy of everything in a batch, to compare.
struct Recorded {
  std::vector<std::vector<std::byte>> obs;
  std::vector<std::vector<std::byte>> final_obs;  // zeros where has_final is 0
  std::vector<double> reward;
  std::vector<std::uint8_t> terminated, truncated, reset, fault, has_final;
  bool operator==(const Recorded&) const = default;
};
Recorded record(const Batch& batch);

/// Sets every environment's action.
void set_actions(VectorEnv& envs, const std::vector<std::int64_t>& actions);

}  // namespace shoal::vector::testing
