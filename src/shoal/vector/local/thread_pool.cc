#include "shoal/vector/local/thread_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/log.h"
#include "shoal/os/process/signals.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/trace/recorder.h"

namespace shoal::vector {
namespace {

constexpr int kRoundsBetweenSleepChecks = 16;

/// How often the calling thread has given its CPU away of its own accord.
long voluntary_switches() noexcept {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

}  // namespace

ThreadPool::ThreadPool(int items, int threads, Run run)
    : items_(items),
      run_(std::move(run)),
      workers_(static_cast<std::size_t>(std::max(1, std::min(threads, items)))),
      policy_(items, this->threads(), os::allowed_cpus()),
      spinners_(policy_.limit() + 1),
      gather_(std::make_unique<sync::Gather>()),
      caller_policy_(sync::SpinOptions{.group_size = spinners_}) {
  threads_.reserve(workers_.size() - 1);
}

bool ThreadPool::awake(int worker) const {
  return worker <= static_cast<int>(threads_.size()) &&
         !workers_[static_cast<std::size_t>(worker)].doorbell.may_have_sleeper();
}

void ThreadPool::begin(Work work) {
  begin_ns_ = os::now_ns();
  own_share_done_ = false;
  under_way_ = true;
  round_.work = work;
  start_round(policy_.plan([this](int worker) { return awake(worker); }));
}

// Worker by worker, its equal part of the chunks: the same items every round, while the plan is the
// same.
void ThreadPool::start_round(const Share& share) {
  round_.chunk = share.chunk;
  round_.chunks = share.chunks;
  round_.workers = share.helpers + 1;
  if (share.helpers == 0) return;
  ++round_.number;
  const trace::Scope scope(trace::Span::kWake, round_.number);
  // relaxed: who still reads less leaves a worker's chunks to its own thread.
  if (round_.workers > workers_used_.load(std::memory_order_relaxed)) {
    workers_used_.store(round_.workers, std::memory_order_relaxed);
  }
  gather_->start(round_.number, static_cast<std::uint32_t>(share.chunks));
  for (int worker = 0; worker < round_.workers; ++worker) {
    const auto part = [&](int i) {
      return static_cast<int>(static_cast<std::int64_t>(share.chunks) * i / round_.workers);
    };
    workers_[static_cast<std::size_t>(worker)].chunks.open(part(worker), part(worker + 1));
  }
  for (int worker = 1; worker < round_.workers; ++worker) wake(worker);
}

void ThreadPool::wake(int worker) {
  const bool is_there = worker <= static_cast<int>(threads_.size()) || start_thread(worker);
  if (is_there) workers_[static_cast<std::size_t>(worker)].doorbell.ring();
}

/// False: there is none to be had. The chunks that it would have begun with are there for the others to take.
bool ThreadPool::start_thread(int worker) {
  if (out_of_threads_) return false;
  const os::BlockSignals block = os::BlockSignals::all();  // they are for the program's own threads
  try {
    threads_.emplace_back([this, worker] { thread_main(worker); });
  } catch (const std::system_error& error) {
    out_of_threads_ = true;
    os::log(os::LogLevel::kWarning, "vector",
            "environments are stepped by {} threads instead of {}: another cannot be started: {}",
            worker, threads(), error.what());
  }
  return !out_of_threads_;
}

bool ThreadPool::finish(os::Deadline deadline) {
  if (!std::exchange(own_share_done_, true)) {
    const bool check = --until_sleep_check_ < 0;
    const long before = check ? voluntary_switches() : 0;
    if (round_.workers == 1) {
      run_alone();
    } else {
      run_share(0);
    }
    if (check) {
      const bool slept = voluntary_switches() > before;
      policy_.record_sleep(slept);
      until_sleep_check_ = slept ? 0 : kRoundsBetweenSleepChecks;
    }
  }
  if (round_.workers > 1 && !wait_for_threads(deadline)) return false;
  finish_round();
  return true;
}

void ThreadPool::run_alone() noexcept {
  const std::uint64_t start_ns = os::now_ns();
  run_items(workers_[0], 0, items_);
  count_share(workers_[0], start_ns);
}

void ThreadPool::run_share(int index) noexcept {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  const std::uint64_t start_ns = os::now_ns();
  std::uint32_t done = 0;
  std::uint64_t stolen = 0;
  for (;;) {
    int chunk = worker.chunks.take();
    if (chunk == sync::ChunkRange::kNone) {
      chunk = steal(index);
      if (chunk == sync::ChunkRange::kNone) break;
      ++stolen;
    }
    // From here on the round cannot end, and what it is may be read.
    const int lo = chunk * round_.chunk;
    run_items(worker, lo, std::min(items_, lo + round_.chunk));
    ++done;
  }
  if (done == 0) return;
  count_share(worker, start_ns);
  worker.stats.steals += stolen;
  gather_->arrive(round_.number, done);
}

// A late thread may come twice in a round.
void ThreadPool::count_share(Worker& worker, std::uint64_t start_ns) noexcept {
  const std::uint64_t end_ns = os::now_ns();
  worker.busy_ns += end_ns - start_ns;
  trace::note(round_.work == Work::kStep ? trace::Span::kWorkerStep : trace::Span::kWorkerReset,
              start_ns, end_ns, round_.number);
}

/// A chunk of the worker that has most left.
int ThreadPool::steal(int thief) noexcept {
  const int workers = workers_used_.load(std::memory_order_relaxed);
  for (;;) {
    int victim = -1;
    int most = 0;
    for (int worker = 0; worker < workers; ++worker) {
      const int left = workers_[static_cast<std::size_t>(worker)].chunks.left();
      if (worker == thief || left <= most) continue;
      victim = worker;
      most = left;
    }
    if (victim < 0) return sync::ChunkRange::kNone;
    const int chunk = workers_[static_cast<std::size_t>(victim)].chunks.take();
    if (chunk != sync::ChunkRange::kNone) return chunk;
  }
}

void ThreadPool::run_items(Worker& worker, int lo, int hi) noexcept {
  try {
    run_(round_.work, lo, hi);
  } catch (...) {
    if (worker.failure && worker.failed_at < lo) return;
    worker.failure = std::current_exception();
    worker.failed_at = lo;
  }
}

bool ThreadPool::wait_for_threads(os::Deadline deadline) {
  const auto park = [&] {
    ++caller_parks_;
    return gather_->park(deadline);
  };
  for (;;) {
    switch (sync::spin_then_park(
        caller_policy_, deadline, [this] { return gather_->left() == 0; }, park)) {
      case sync::WaitOutcome::kReady:
        return true;
      case sync::WaitOutcome::kTimedOut:
        return false;
      case sync::WaitOutcome::kInterrupted:
        break;  // a signal handler ran
    }
  }
}

void ThreadPool::finish_round() {
  std::uint64_t busy_ns = 0;
  bool helped = false;
  const int started = static_cast<int>(threads_.size()) + 1;
  for (int index = 0; index < started; ++index) {
    Worker& worker = workers_[static_cast<std::size_t>(index)];
    const std::uint64_t own = std::exchange(worker.busy_ns, 0);
    worker.stats.busy_ns += own;
    busy_ns += own;
    helped |= index > 0 && own > 0;
  }
  if (round_.work == Work::kStep) {
    ++workers_[0].stats.steps;
    policy_.record(busy_ns, end_ns_ == 0 ? 0 : begin_ns_ - end_ns_, helped);
  } else {
    ++workers_[0].stats.resets;
  }
  end_ns_ = os::now_ns();
  under_way_ = false;
}

void ThreadPool::thread_main(int index) {
  const process::OwnThread own_thread;
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  sync::SpinPolicy policy(sync::SpinOptions{.group_size = spinners_});
  for (std::uint32_t seen = 0;;) {
    const auto park = [&] {
      worker.parks.fetch_add(1, std::memory_order_relaxed);  // relaxed: telemetry
      return worker.doorbell.park(seen, os::kNoDeadline);
    };
    static_cast<void>(sync::spin_then_park(
        policy, os::kNoDeadline, [&] { return worker.doorbell.generation() != seen; }, park));
    if (worker.doorbell.generation() == seen) continue;
    seen = worker.doorbell.generation();
    if (quit_.load(std::memory_order_relaxed)) return;  // relaxed: no data goes with it
    run_share(index);
  }
}

std::exception_ptr ThreadPool::take_failure() {
  std::exception_ptr first;
  int at = items_;
  for (Worker& worker : workers_) {
    if (!worker.failure) continue;
    std::exception_ptr failure = std::exchange(worker.failure, nullptr);
    if (worker.failed_at >= at) continue;
    first = std::move(failure);
    at = worker.failed_at;
  }
  return first;
}

void ThreadPool::stop() noexcept {
  if (threads_.empty()) return;
  if (!maker_.is_this()) {
    os::abandon(std::move(threads_));
    threads_.clear();
    return;
  }
  if (under_way_) give_up_round();
  quit_.store(true, std::memory_order_relaxed);  // relaxed: no data goes with it
  for (std::size_t i = 0; i < threads_.size(); ++i) workers_[i + 1].doorbell.ring();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// Takes what nobody has begun, undone, and waits for the rest.
void ThreadPool::give_up_round() noexcept {
  if (round_.workers == 1) return;
  std::uint32_t undone = 0;
  while (steal(-1) != sync::ChunkRange::kNone) ++undone;
  if (undone > 0) gather_->arrive(round_.number, undone);
  static_cast<void>(wait_for_threads(os::kNoDeadline));
  under_way_ = false;
}

std::vector<WorkerStats> ThreadPool::stats() const {
  std::vector<WorkerStats> stats;
  for (const Worker& worker : workers_) {
    stats.push_back(worker.stats);
    stats.back().steps = workers_[0].stats.steps;
    stats.back().resets = workers_[0].stats.resets;
    stats.back().parks = worker.parks.load(std::memory_order_relaxed);  // relaxed: telemetry
  }
  return stats;
}

}  // namespace shoal::vector
