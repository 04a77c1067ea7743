// Over which CPUs the workers of a ProcessEngine are spread.
#include "shoal/os/affinity.h"
#include "shoal/vector/process_engine.h"

namespace shoal::vector {

// Of a caller with so many threads beside it that may run at the same time.
sync::SpinPolicy ProcessEngine::spinning_beside(int workers) const {
  return {sync::SpinOptions{.group_size = workers + 1}, sync::CpuLoad(), allowed_cpus_};
}

// When the policy has changed its mind. Fewer CPUs than all leave the caller the one that it runs
// on, where it then spins; on that one itself it makes room.
void ProcessEngine::place_all() {
  const int spread = spread_policy_.cpus();
  cpus_.spread(spread, os::current_cpu());
  for (const WorkerSeat& seat : seats_) {
    if (seat.attached()) cpus_.place(seat.index(), seat.process().pid());
  }
  spin_policy_ = spinning_beside(spread == SpreadPolicy::kCallers ? allowed_cpus_ : spread);
  strays_ = 0;
}

// Where the workers are to be on the caller's CPU, and the kernel has moved the caller.
void ProcessEngine::follow_caller() {
  constexpr int kMany = 16;  // fewer may be a visit
  strays_ = os::current_cpu() == cpus_.first() ? 0 : strays_ + 1;
  if (strays_ >= kMany) place_all();
}

// After a step that took the workers until `now_ns`.
void ProcessEngine::learn_placement(std::uint64_t now_ns) {
  if (spread_policy_.idle()) return;
  if (spread_policy_.record(now_ns, now_ns - posted_ns_)) {
    place_all();
  } else if (spread_policy_.cpus() == SpreadPolicy::kCallers) {
    follow_caller();
  }
}

}  // namespace shoal::vector
