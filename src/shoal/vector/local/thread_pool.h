// The persistent threads behind a ThreadVectorEnv, and how they share a round of work.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/process/making_process.h"
#include "shoal/sync/chunk_range.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/vector/local/share_policy.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// Runs rounds over items [0, items): the calling thread is worker 0, the pool's own threads are the
/// others. Each worker begins with a contiguous range of its own and then takes from those that have
/// most left. What a round is worth in threads and chunks, the SharePolicy says; a thread starts
/// when it is first wanted.
///
/// Threads: the caller's, which begins and finishes the rounds. `run` is called by several threads
/// at once, for disjoint ranges; a worker's counters are written by whoever runs it, before its
/// arrival.
///
/// Memory ordering: the round's plan is read by who holds one of its chunks (sync::ChunkRange,
/// [chunks]); results by the caller after the gather ([left]). A late thread may take part in a
/// later round than the one it was rung for.
///
/// Fork: the threads do not exist in the child; a copy there lets go of them without joining.
/// Processes, death: of this one, with which its threads end.
class ThreadPool {
 public:
  enum class Work : std::uint8_t { kReset, kStep };
  using Run = std::function<void(Work, int lo, int hi)>;

  /// `threads` counts the caller; more than there are CPUs are used where the work sleeps.
  ThreadPool(int items, int threads, Run run);
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Begins a round: wakes as many threads as it is worth.
  void begin(Work work);
  /// Does the caller's share and waits for the others'; false when the deadline came first, then
  /// call it again.
  [[nodiscard]] bool finish(os::Deadline deadline);
  /// The failure of the last round that happened in the lowest items; taken out.
  std::exception_ptr take_failure();

  /// Ends the threads. Idempotent.
  void stop() noexcept;

  int threads() const noexcept { return static_cast<int>(workers_.size()); }
  /// Steps, resets, busy time and steals of every worker; their environments are the caller's matter.
  std::vector<WorkerStats> stats() const;
  std::uint64_t parks() const noexcept { return caller_parks_; }
  /// The number of the round under way or of the last one, and os::now_ns() of its beginning.
  std::uint32_t round() const noexcept { return round_.number; }
  std::uint64_t begin_ns() const noexcept { return begin_ns_; }

 private:
  struct alignas(128) Worker {
    sync::ChunkRange chunks;
    sync::Doorbell doorbell;
    WorkerStats stats;
    std::uint64_t busy_ns = 0;  // of this round
    std::exception_ptr failure;
    int failed_at = 0;
    std::atomic<std::uint64_t> parks{0};  // its own thread's; read at any time
  };
  /// What holders of chunks read; written between rounds.
  struct Round {
    Work work = Work::kReset;
    int chunk = 1;
    int chunks = 0;
    int workers = 1;
    std::uint32_t number = 0;
  };

  bool awake(int worker) const;
  void start_round(const Share& share);
  void run_share(int worker) noexcept;
  void count_share(Worker& worker, std::uint64_t start_ns) noexcept;
  void run_items(Worker& worker, int lo, int hi) noexcept;
  int steal(int thief) noexcept;
  void run_alone() noexcept;
  bool wait_for_threads(os::Deadline deadline);
  void wake(int worker);
  bool start_thread(int worker);
  void thread_main(int worker);
  void finish_round();
  void give_up_round() noexcept;

  const int items_;
  const Run run_;
  std::vector<Worker> workers_;
  std::vector<std::thread> threads_;  // element 0 is worker 1's
  const os::MakingProcess maker_;
  SharePolicy policy_;
  const int spinners_;  // threads that may spin at the same time
  std::unique_ptr<sync::Gather> gather_;
  sync::SpinPolicy caller_policy_;
  Round round_;
  // Workers that any round has had: a thief looks no further, however many more there may be.
  std::atomic<int> workers_used_{1};
  std::atomic<bool> quit_{false};
  bool under_way_ = false;
  bool own_share_done_ = false;
  std::uint64_t begin_ns_ = 0;
  std::uint64_t end_ns_ = 0;
  std::uint64_t caller_parks_ = 0;
  int until_sleep_check_ = 0;
  bool out_of_threads_ = false;  // the system has no more
};

}  // namespace shoal::vector
