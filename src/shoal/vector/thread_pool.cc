#include "shoal/vector/thread_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/process/signals.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/sync/spin_wait.h"

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
      lanes_(static_cast<std::size_t>(std::max(1, std::min(threads, items)))),
      owner_pid_(::getpid()),
      policy_(items, this->threads(), os::allowed_cpus()),
      spinners_(policy_.limit() + 1),
      gather_(std::make_unique<sync::Gather>()),
      caller_policy_(sync::SpinOptions{.group_size = spinners_}) {
  threads_.reserve(lanes_.size() - 1);
}

bool ThreadPool::awake(int lane) const {
  return lane <= static_cast<int>(threads_.size()) &&
         !lanes_[static_cast<std::size_t>(lane)].doorbell.may_have_sleeper();
}

void ThreadPool::begin(Work work) {
  begin_ns_ = os::now_ns();
  own_share_done_ = false;
  under_way_ = true;
  round_.work = work;
  start_round(policy_.plan([this](int lane) { return awake(lane); }));
}

// Lane by lane, its equal part of the chunks: the same items every round, while the plan is the
// same.
void ThreadPool::start_round(const Share& share) {
  round_.chunk = share.chunk;
  round_.chunks = share.chunks;
  round_.lanes = share.helpers + 1;
  if (share.helpers == 0) return;
  ++round_.number;
  // relaxed: who still reads less leaves a lane's chunks to its own thread.
  if (round_.lanes > lanes_used_.load(std::memory_order_relaxed)) {
    lanes_used_.store(round_.lanes, std::memory_order_relaxed);
  }
  gather_->start(round_.number, static_cast<std::uint32_t>(share.chunks));
  for (int lane = 0; lane < round_.lanes; ++lane) {
    const auto part = [&](int i) {
      return static_cast<int>(static_cast<std::int64_t>(share.chunks) * i / round_.lanes);
    };
    lanes_[static_cast<std::size_t>(lane)].chunks.open(part(lane), part(lane + 1));
  }
  for (int lane = 1; lane < round_.lanes; ++lane) wake(lane);
}

void ThreadPool::wake(int lane) {
  if (lane > static_cast<int>(threads_.size())) {
    // Signals are for the program's own threads.
    const os::BlockSignals block = os::BlockSignals::all();
    threads_.emplace_back([this, lane] { thread_main(lane); });
  }
  lanes_[static_cast<std::size_t>(lane)].doorbell.ring();
}

bool ThreadPool::finish(os::Deadline deadline) {
  if (!std::exchange(own_share_done_, true)) {
    const bool check = --until_sleep_check_ < 0;
    const long before = check ? voluntary_switches() : 0;
    if (round_.lanes == 1) {
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
  if (round_.lanes > 1 && !wait_for_threads(deadline)) return false;
  finish_round();
  return true;
}

void ThreadPool::run_alone() noexcept {
  const std::uint64_t start_ns = os::now_ns();
  run_items(lanes_[0], 0, items_);
  lanes_[0].busy_ns = os::now_ns() - start_ns;
}

void ThreadPool::run_share(int index) noexcept {
  Lane& lane = lanes_[static_cast<std::size_t>(index)];
  const std::uint64_t start_ns = os::now_ns();
  std::uint32_t done = 0;
  std::uint64_t stolen = 0;
  for (;;) {
    int chunk = lane.chunks.take();
    if (chunk == sync::ChunkRange::kNone) {
      chunk = steal(index);
      if (chunk == sync::ChunkRange::kNone) break;
      ++stolen;
    }
    // From here on the round cannot end, and what it is may be read.
    const int lo = chunk * round_.chunk;
    run_items(lane, lo, std::min(items_, lo + round_.chunk));
    ++done;
  }
  if (done == 0) return;
  lane.busy_ns += os::now_ns() - start_ns;  // a late thread may come twice in a round
  lane.stats.steals += stolen;
  gather_->arrive(round_.number, done);
}

/// A chunk of the lane that has most left.
int ThreadPool::steal(int thief) noexcept {
  const int lanes = lanes_used_.load(std::memory_order_relaxed);
  for (;;) {
    int victim = -1;
    int most = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const int left = lanes_[static_cast<std::size_t>(lane)].chunks.left();
      if (lane == thief || left <= most) continue;
      victim = lane;
      most = left;
    }
    if (victim < 0) return sync::ChunkRange::kNone;
    const int chunk = lanes_[static_cast<std::size_t>(victim)].chunks.take();
    if (chunk != sync::ChunkRange::kNone) return chunk;
  }
}

void ThreadPool::run_items(Lane& lane, int lo, int hi) noexcept {
  try {
    run_(round_.work, lo, hi);
  } catch (...) {
    if (lane.failure && lane.failed_at < lo) return;
    lane.failure = std::current_exception();
    lane.failed_at = lo;
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
    Lane& lane = lanes_[static_cast<std::size_t>(index)];
    const std::uint64_t own = std::exchange(lane.busy_ns, 0);
    lane.stats.busy_ns += own;
    busy_ns += own;
    helped |= index > 0 && own > 0;
  }
  if (round_.work == Work::kStep) {
    ++lanes_[0].stats.steps;
    policy_.record(busy_ns, end_ns_ == 0 ? 0 : begin_ns_ - end_ns_, helped);
  } else {
    ++lanes_[0].stats.resets;
  }
  end_ns_ = os::now_ns();
  under_way_ = false;
}

void ThreadPool::thread_main(int index) {
  const process::OwnThread own_thread;
  Lane& lane = lanes_[static_cast<std::size_t>(index)];
  sync::SpinPolicy policy(sync::SpinOptions{.group_size = spinners_});
  for (std::uint32_t seen = 0;;) {
    const auto park = [&] {
      lane.parks.fetch_add(1, std::memory_order_relaxed);  // relaxed: telemetry
      return lane.doorbell.park(seen, os::kNoDeadline);
    };
    static_cast<void>(sync::spin_then_park(
        policy, os::kNoDeadline, [&] { return lane.doorbell.generation() != seen; }, park));
    if (lane.doorbell.generation() == seen) continue;
    seen = lane.doorbell.generation();
    if (quit_.load(std::memory_order_relaxed)) return;  // relaxed: no data goes with it
    run_share(index);
  }
}

std::exception_ptr ThreadPool::take_failure() {
  std::exception_ptr first;
  int at = items_;
  for (Lane& lane : lanes_) {
    if (!lane.failure) continue;
    std::exception_ptr failure = std::exchange(lane.failure, nullptr);
    if (lane.failed_at >= at) continue;
    first = std::move(failure);
    at = lane.failed_at;
  }
  return first;
}

void ThreadPool::stop() noexcept {
  if (threads_.empty()) return;
  if (owner_pid_ != ::getpid()) {
    // A forked copy: there is nothing to join, and a std::thread that is joinable must not be
    // destroyed.
    static_cast<void>(new std::vector<std::thread>(std::move(threads_)));
    threads_.clear();
    return;
  }
  if (under_way_) give_up_round();
  quit_.store(true, std::memory_order_relaxed);  // relaxed: no data goes with it
  for (std::size_t i = 0; i < threads_.size(); ++i) lanes_[i + 1].doorbell.ring();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// Takes what nobody has begun, undone, and waits for the rest.
void ThreadPool::give_up_round() noexcept {
  if (round_.lanes == 1) return;
  std::uint32_t undone = 0;
  while (steal(-1) != sync::ChunkRange::kNone) ++undone;
  if (undone > 0) gather_->arrive(round_.number, undone);
  static_cast<void>(wait_for_threads(os::kNoDeadline));
  under_way_ = false;
}

std::vector<WorkerStats> ThreadPool::stats() const {
  std::vector<WorkerStats> stats;
  for (const Lane& lane : lanes_) {
    stats.push_back(lane.stats);
    stats.back().steps = lanes_[0].stats.steps;
    stats.back().resets = lanes_[0].stats.resets;
    stats.back().parks = lane.parks.load(std::memory_order_relaxed);  // relaxed: telemetry
  }
  return stats;
}

}  // namespace shoal::vector
