// How a round of work is cut into chunks, and how many threads it is worth.
#pragma once

#include <cstdint>

namespace shoal::vector {

/// The plan of one round: `chunks` chunks of `chunk` items each (the last one may be shorter), for
/// the caller and `helpers` others.
struct Share {
  int helpers = 0;
  int chunk = 1;
  int chunks = 1;
  bool operator==(const Share&) const = default;
};

/// What the caller of a thread pool has learned of its rounds.
///
/// A helper that spins joins within a microsecond; one that sleeps costs the caller a system call
/// and comes 50 to 90 µs later. So a round wakes as many sleepers as save it more than that, and no
/// more than there are CPUs: more threads than CPUs are of use only where the work sleeps. Shorter
/// rounds that follow each other closely are worth a sleeper too, if it then stays awake: this is
/// tried, less and less often while it does not pay.
///
/// Threads: the caller's only.
/// Processes, death: the caller's own, and ends with it.
class SharePolicy {
 public:
  /// `cpus` that this process may use; `threads` of the pool, the caller among them.
  SharePolicy(int items, int threads, int cpus);

  /// `awake(h)` says of helper h (1, 2, …) that it does not sleep.
  template <class Awake>
  Share plan(Awake awake) {
    begin_plan();
    int helpers = 0;
    while (helpers < limit() && wants_another(helpers, awake(helpers + 1))) ++helpers;
    return cut(helpers);
  }

  /// A round of all items that is over: the time that all threads together worked, the time between
  /// the end of the round before and its beginning, and whether helpers did some of it.
  void record(std::uint64_t busy_ns, std::uint64_t gap_ns, bool helped) noexcept;

  /// Whether an item of the last round gave its CPU away of its own accord (it slept or waited).
  void record_sleep(bool slept) noexcept;

  /// The smoothed time that one round takes one thread; 0: not known yet.
  double cost_ns() const noexcept { return cost_ns_; }
  /// Helpers that a round may have.
  int limit() const noexcept;

 private:
  void begin_plan() noexcept;
  bool wants_another(int helpers, bool awake) noexcept;
  bool try_waking(double saving_ns) noexcept;
  Share cut(int helpers) const noexcept;

  int items_;
  int threads_;
  int cpus_;
  double cost_ns_ = 0;
  double gap_ns_ = 0;
  int sleepy_ = 0;          // rounds that slept, lately
  bool trying_ = false;     // a helper was woken to see whether it stays awake
  int helped_ = 0;          // rounds that helpers took part in since
  int patience_ = 0;        // rounds until the next try
  int next_patience_ = 64;  // and after that one, if it fails
};

}  // namespace shoal::vector
