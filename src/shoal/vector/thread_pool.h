// The persistent threads behind a ThreadVectorEnv, and the steppers that belong to them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/vector/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// Runs step or reset of all steppers, stepper 0 in the calling thread.
///
/// Threads: the caller's, which begins and finishes the rounds; the pool's own touch only their own
/// lane, and only between the ring that begins a round and their arrival that ends it.
///
/// Memory ordering: that of sync::Doorbell and sync::Gather, which hand the lanes to and fro.
///
/// Fork: the threads do not exist in the child; a copy there lets go of them without joining.
class ThreadPool {
 public:
  enum class Work : std::uint8_t { kReset, kStep, kQuit };

  explicit ThreadPool(std::vector<std::unique_ptr<Stepper>> steppers);
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Begins a round. Steps that are over sooner than a thread wakes up are left to finish().
  void begin(Work work);
  /// Does the caller's share and waits for the others'; false when the deadline came first, then
  /// call it again.
  [[nodiscard]] bool finish(os::Deadline deadline);
  /// The first failure of the last round, by lane; taken out.
  std::exception_ptr take_failure();

  /// Ends the threads. Idempotent.
  void stop() noexcept;

  std::vector<WorkerStats> stats() const;
  std::uint64_t parks() const noexcept { return caller_parks_; }

 private:
  struct alignas(128) Lane {
    std::unique_ptr<Stepper> stepper;
    WorkerStats stats;
    std::uint64_t last_busy_ns = 0;
    std::exception_ptr failure;
    std::atomic<std::uint64_t> parks{
        0};  // the thread's own; it counts while the caller may run its lane
  };

  void run_lane(std::size_t lane, Work work) noexcept;
  void thread_main(std::size_t lane);
  bool wait_for_threads(os::Deadline deadline);
  void learn_cost() noexcept;

  std::vector<Lane> lanes_;
  std::vector<std::thread> threads_;
  const int owner_pid_;
  std::unique_ptr<sync::Doorbell> doorbell_;
  std::unique_ptr<sync::Gather> gather_;
  sync::SpinPolicy caller_policy_;
  Work work_ = Work::kReset;  // written before the ring, read after it
  bool alone_ = false;        // this round runs in the caller only
  bool own_share_done_ = false;
  double step_cost_ns_ = 0;  // of all lanes together, smoothed; 0: not known yet
  std::uint64_t caller_parks_ = 0;
};

}  // namespace shoal::vector
