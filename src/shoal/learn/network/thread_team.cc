#include "shoal/learn/network/thread_team.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/limits/affinity.h"
#include "shoal/os/process/signals.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/sync/spin_wait.h"

namespace shoal::learn {

int compute_threads() {
  int threads = 0;
  if (const char* variable = std::getenv("OMP_NUM_THREADS")) {
    const std::string_view text = variable;
    std::from_chars(text.data(), text.data() + text.size(), threads);  // of a list: the first
  }
  if (threads < 1) threads = os::allowed_cpus();
  return std::clamp(threads, 1, ThreadTeam::kMaxThreads);
}

ThreadTeam::ThreadTeam(int threads)
    : threads_(std::clamp(threads, 1, kMaxThreads)),
      chunks_(std::make_unique<sync::ChunkRange>()),
      doorbell_(std::make_unique<sync::Doorbell>()),
      gather_(std::make_unique<sync::Gather>()),
      caller_policy_(sync::SpinOptions{.group_size = threads_}) {}

ThreadTeam::~ThreadTeam() {
  if (helpers_.empty()) return;
  if (!maker_.is_this()) {
    os::abandon(std::move(helpers_));
    return;
  }
  quit_.store(true, std::memory_order_relaxed);  // relaxed: no data goes with it
  doorbell_->ring();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadTeam::start_helpers() {
  if (!helpers_.empty()) return;
  // Signals are for the program's own threads.
  const os::BlockSignals block = os::BlockSignals::all();
  helpers_.reserve(static_cast<std::size_t>(threads_ - 1));
  for (int thread = 1; thread < threads_; ++thread)
    helpers_.emplace_back([this, thread] { help(thread); });
}

void ThreadTeam::run(int tasks, const Task& task) {
  SHOAL_CHECK(tasks <= kMaxTasks, "a round of at most kMaxTasks");
  if (threads_ == 1 || tasks <= 1 || !maker_.is_this()) {
    for (int i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  start_helpers();
  task_ = &task;
  gather_->start(++round_, static_cast<std::uint32_t>(tasks));
  chunks_->open(0, tasks);
  doorbell_->ring();
  take_tasks(0);
  while (gather_->wait(caller_policy_, os::kNoDeadline) != sync::WaitOutcome::kReady) {
    // A signal handler ran.
  }
}

void ThreadTeam::take_tasks(int thread) noexcept {
  std::uint32_t done = 0;
  for (int i; (i = chunks_->take()) != sync::ChunkRange::kNone; ++done) {
    // From here on the round cannot end, and what it is may be read.
    (*task_)(i, thread);
  }
  if (done > 0) gather_->arrive(round_, done);
}

void ThreadTeam::help(int thread) {
  const process::OwnThread own_thread;
  sync::SpinPolicy policy(sync::SpinOptions{.group_size = threads_});
  for (std::uint32_t seen = 0;;) {
    static_cast<void>(doorbell_->wait(seen, policy, os::kNoDeadline));
    if (doorbell_->generation() == seen) continue;
    seen = doorbell_->generation();
    if (quit_.load(std::memory_order_relaxed)) return;  // relaxed: no data goes with it
    take_tasks(thread);
  }
}

}  // namespace shoal::learn
