// Threads that compute the parts of one thing together.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "shoal/os/process/making_process.h"
#include "shoal/sync/chunk_range.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::learn {

/// How many threads a network may compute with: OMP_NUM_THREADS where it is a number above 0, else
/// the CPUs that this process may use; at most ThreadTeam::kMaxThreads.
int compute_threads();

/// The calling thread and helpers, which start when they are first wanted.
///
/// Threads: one calls at a time. A task runs on any of them, so what it computes must not depend on
/// which, or on the order.
/// Memory ordering: what was written before run() is seen by its tasks, and what they wrote by the
/// caller afterwards ([chunks], [left] of sync).
/// Fork: the helpers do not exist in the child, where the caller does all by itself.
/// Processes, death: of this one, with which the helpers end.
class ThreadTeam {
 public:
  static constexpr int kMaxThreads = 16;
  static constexpr int kMaxTasks = sync::ChunkRange::kMaxChunks;

  using Task = std::function<void(int task, int thread)>;

  /// `threads` counts the caller.
  explicit ThreadTeam(int threads = compute_threads());
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const noexcept { return threads_; }

  /// Calls task(i, thread) once for each i in [0, tasks), tasks <= kMaxTasks; no two calls at a time
  /// have the same `thread`, which is below threads(). Tasks must not throw.
  void run(int tasks, const Task& task);

 private:
  void start_helpers();
  void take_tasks(int thread) noexcept;
  void help(int thread);

  const int threads_;
  const os::MakingProcess maker_;
  const std::unique_ptr<sync::ChunkRange> chunks_;
  const std::unique_ptr<sync::Doorbell> doorbell_;
  const std::unique_ptr<sync::Gather> gather_;
  sync::SpinPolicy caller_policy_;
  // What holders of a task read; written between rounds.
  const Task* task_ = nullptr;
  std::uint32_t round_ = 0;
  std::atomic<bool> quit_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace shoal::learn
