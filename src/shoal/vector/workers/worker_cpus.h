// Which CPUs each worker process runs on.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace shoal::vector {

/// The CPUs of every worker, by index; a worker without any runs wherever the kernel puts it.
/// A value.
/// Threads: one at a time.
/// Processes, death: the caller's own, and ends with it.
class WorkerCpus {
 public:
  /// With `chosen`, worker i has chosen[i % chosen.size()]. Else, with `pin_workers` and exactly
  /// one worker for each CPU of this process's set, each has one to itself: left alone, the kernel
  /// now and then puts two of them on one CPU and leaves another idle. With fewer workers than CPUs
  /// other programs, or other environments, may need the ones chosen; with more, or with less time
  /// than the CPUs have, no worker can have one to itself. Throws InvalidArgument naming a chosen
  /// CPU that this process may not use.
  WorkerCpus(std::vector<std::vector<int>> chosen, bool pin_workers, std::size_t workers);

  /// Whether they were chosen: such a worker is placed before it builds anything.
  bool chosen() const noexcept { return chosen_; }
  /// Over how many CPUs they may be spread otherwise than with one each; 0: there is no choice.
  int choice() const noexcept { return chosen_ ? 0 : static_cast<int>(cpus_.size()); }
  /// From the next place() on: over `count` of these CPUs, without `caller`, on which their caller
  /// runs, unless they are all of them; with a count of 0 all on `caller`.
  void spread(int count, int caller) noexcept;
  /// The CPU that the first of them is on.
  int first() const noexcept { return cpus_[first_].front(); }
  /// Confines process `pid`, worker `index`, and what it starts from now on. A CPU that has gone,
  /// or a worker that is gone and shows as such later, changes nothing: a place is a wish.
  void place(int index, pid_t pid) const noexcept;

 private:
  std::vector<std::vector<int>> cpus_;
  bool chosen_;
  std::size_t first_ = 0;  // worker 0's
  std::size_t count_ = 0;  // that are in use, from the first one on
};

}  // namespace shoal::vector
