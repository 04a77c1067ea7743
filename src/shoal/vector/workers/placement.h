// On how many CPUs the workers of a ProcessVectorEnv are, as measured while they step, and how its
// caller spins beside them (docs/decisions/measured-placement.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shoal/sync/spin_policy.h"
#include "shoal/vector/workers/spread_policy.h"
#include "shoal/vector/workers/worker_pool.h"

namespace shoal::vector {

/// Threads: the caller's.
/// Processes: the caller's, which moves its workers.
/// Death: of a worker: its successor is placed as it was.
class Placement {
 public:
  explicit Placement(const std::shared_ptr<WorkerPool>& pool);

  /// Of the caller: it spins where there is a CPU for it as well.
  sync::SpinPolicy& spin_policy() noexcept { return spin_policy_; }
  /// A step of `round_ns` has ended at `now_ns`.
  void learn(std::uint64_t now_ns, std::uint64_t round_ns);
  std::string account() const { return spread_.account(); }

 private:
  sync::SpinPolicy spinning_beside(int workers) const;
  void place_all();
  void follow_caller();

  const std::weak_ptr<WorkerPool> pool_;
  const int allowed_cpus_;  // that this process may use
  SpreadPolicy spread_;     // over how many of those
  sync::SpinPolicy spin_policy_;
  int strays_ = 0;  // rounds in a row that the caller ended on another CPU than its workers'
};

}  // namespace shoal::vector
