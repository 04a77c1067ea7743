#include "shoal/vector/thread_pool.h"

#include <unistd.h>

#include <utility>

#include "shoal/os/signals.h"
#include "shoal/process/own_thread.h"
#include "shoal/sync/spin_wait.h"

namespace shoal::vector {
namespace {

// Below this, all steppers together are stepped sooner by the caller than a sleeping thread starts
// to help.
constexpr double kAloneBelowNs = 30'000;

}  // namespace

ThreadPool::ThreadPool(std::vector<std::unique_ptr<Stepper>> steppers)
    : lanes_(steppers.size()),
      owner_pid_(::getpid()),
      doorbell_(std::make_unique<sync::Doorbell>()),
      gather_(std::make_unique<sync::Gather>()),
      caller_policy_(sync::SpinOptions{.group_size = static_cast<int>(steppers.size())}) {
  int first_env = 0;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].stepper = std::move(steppers[lane]);
    lanes_[lane].stats.first_env = first_env;
    lanes_[lane].stats.num_envs = lanes_[lane].stepper->count();
    first_env += lanes_[lane].stepper->count();
  }
  const os::BlockSignals block =
      os::BlockSignals::all();  // signals are for the program's own threads
  for (std::size_t lane = 1; lane < lanes_.size(); ++lane) {
    threads_.emplace_back([this, lane] { thread_main(lane); });
  }
}

void ThreadPool::begin(Work work) {
  work_ = work;
  own_share_done_ = false;
  alone_ = threads_.empty() ||
           (work == Work::kStep && step_cost_ns_ > 0 && step_cost_ns_ < kAloneBelowNs);
  if (alone_) return;
  gather_->start(doorbell_->generation() + 1, static_cast<std::uint32_t>(threads_.size()));
  doorbell_->ring();
}

bool ThreadPool::finish(os::Deadline deadline) {
  if (!std::exchange(own_share_done_, true)) {
    const std::size_t share = alone_ ? lanes_.size() : 1;
    for (std::size_t lane = 0; lane < share; ++lane) run_lane(lane, work_);
  }
  if (!alone_ && !wait_for_threads(deadline)) return false;
  if (work_ == Work::kStep) learn_cost();
  return true;
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

void ThreadPool::learn_cost() noexcept {
  double cost_ns = 0;
  for (const Lane& lane : lanes_) cost_ns += static_cast<double>(lane.last_busy_ns);
  step_cost_ns_ = step_cost_ns_ == 0 ? cost_ns : step_cost_ns_ + (cost_ns - step_cost_ns_) / 8;
}

void ThreadPool::run_lane(std::size_t index, Work work) noexcept {
  Lane& lane = lanes_[index];
  const std::uint64_t start_ns = os::now_ns();
  try {
    if (work == Work::kStep) {
      lane.stepper->step();
      ++lane.stats.steps;
    } else {
      lane.stepper->reset();
      ++lane.stats.resets;
    }
  } catch (...) {
    lane.failure = std::current_exception();
  }
  lane.last_busy_ns = os::now_ns() - start_ns;
  lane.stats.busy_ns += lane.last_busy_ns;
}

void ThreadPool::thread_main(std::size_t lane) {
  const process::OwnThread own_thread;
  sync::SpinPolicy policy(sync::SpinOptions{.group_size = static_cast<int>(lanes_.size())});
  for (std::uint32_t seen = 0;;) {  // every thread takes part in every round
    const auto park = [&] {
      lanes_[lane].parks.fetch_add(1, std::memory_order_relaxed);  // relaxed: telemetry
      return doorbell_->park(seen, os::kNoDeadline);
    };
    static_cast<void>(sync::spin_then_park(
        policy, os::kNoDeadline, [&] { return doorbell_->generation() != seen; }, park));
    if (doorbell_->generation() == seen) continue;
    seen = doorbell_->generation();
    const Work work = work_;
    if (work == Work::kQuit) return;
    run_lane(lane, work);
    gather_->arrive(seen);
  }
}

std::exception_ptr ThreadPool::take_failure() {
  std::exception_ptr first;
  for (Lane& lane : lanes_) {
    std::exception_ptr failure = std::exchange(lane.failure, nullptr);
    if (!first) first = std::move(failure);
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
  if (!alone_) wait_for_threads(os::kNoDeadline);  // for a round that was given up
  work_ = Work::kQuit;
  doorbell_->ring();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::vector<WorkerStats> ThreadPool::stats() const {
  std::vector<WorkerStats> stats;
  for (const Lane& lane : lanes_) {
    stats.push_back(lane.stats);
    stats.back().parks = lane.parks.load(std::memory_order_relaxed);  // relaxed: telemetry
  }
  return stats;
}

}  // namespace shoal::vector
