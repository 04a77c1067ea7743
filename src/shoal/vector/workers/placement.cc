#include "shoal/vector/workers/placement.h"

#include "shoal/os/limits/affinity.h"

namespace shoal::vector {

Placement::Placement(const std::shared_ptr<WorkerPool>& pool)
    : pool_(pool),
      allowed_cpus_(os::allowed_cpus()),
      spread_(pool->choice_of_cpus()),
      spin_policy_(spinning_beside(pool->num_workers())) {}

// Of a caller with so many threads beside it that may run at the same time.
sync::SpinPolicy Placement::spinning_beside(int workers) const {
  return {sync::SpinOptions{.group_size = workers + 1}, sync::CpuLoad(), allowed_cpus_};
}

// When the policy has changed its mind. Fewer CPUs than all leave the caller the one that it runs
// on, where it then spins; on that one itself it makes room.
void Placement::place_all() {
  const int cpus = spread_.cpus();
  if (const auto pool = pool_.lock()) pool->spread(cpus, os::current_cpu());
  spin_policy_ = spinning_beside(cpus == SpreadPolicy::kCallers ? allowed_cpus_ : cpus);
  strays_ = 0;
}

// Where the workers are to be on the caller's CPU, and the kernel has moved the caller.
void Placement::follow_caller() {
  constexpr int kMany = 16;  // fewer may be a visit
  const auto pool = pool_.lock();
  strays_ = !pool || os::current_cpu() == pool->first_cpu() ? 0 : strays_ + 1;
  if (strays_ >= kMany) place_all();
}

void Placement::learn(std::uint64_t now_ns, std::uint64_t round_ns) {
  if (spread_.idle()) return;
  if (spread_.record(now_ns, round_ns)) {
    place_all();
  } else if (spread_.cpus() == SpreadPolicy::kCallers) {
    follow_caller();
  }
}

}  // namespace shoal::vector
