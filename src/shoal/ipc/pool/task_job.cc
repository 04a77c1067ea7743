#include "shoal/ipc/pool/task_job.h"

#include <utility>

namespace shoal::ipc {

template <class Ready>
bool TaskJob::wait_until(std::unique_lock<std::mutex>& lock, os::Deadline deadline,
                         Ready ready) const {
  if (deadline == os::kNoDeadline) {
    changed_.wait(lock, ready);
    return true;
  }
  return changed_.wait_until(lock, deadline, ready);
}

void TaskJob::seal(std::size_t length) {
  {
    const std::lock_guard lock(mutex_);
    length_ = length;
  }
  changed_.notify_all();
}

bool TaskJob::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_locked();
}

std::optional<std::uint32_t> TaskJob::first_failure() const {
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

bool TaskJob::wait(os::Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return wait_until(lock, deadline, [&] { return finished_locked(); });
}

TaskJob::Wait TaskJob::take(std::uint32_t index, Outcome& out, os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto exhausted = [&] {
    return (length_ && index >= *length_) ||
           (index < slots_.size() && slots_[index].state == Slot::kTaken);
  };
  const auto ready = [&] {
    return exhausted() || (index < slots_.size() && slots_[index].state == Slot::kFull);
  };
  if (!wait_until(lock, deadline, ready)) return Wait::kTimedOut;
  if (exhausted()) return Wait::kExhausted;
  Slot& slot = slots_[index];
  out = {index, slot.ok, std::exchange(slot.bytes, {}), std::exchange(slot.held, {})};
  slot.state = Slot::kTaken;
  return Wait::kReady;
}

TaskJob::Wait TaskJob::take_any(Outcome& out, os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto skip_taken = [&] {
    while (!arrived_.empty() && slots_[arrived_.front()].state == Slot::kTaken) {
      arrived_.pop_front();
    }
  };
  const auto ready = [&] {
    skip_taken();
    return !arrived_.empty() || finished_locked();
  };
  if (!wait_until(lock, deadline, ready)) return Wait::kTimedOut;
  if (arrived_.empty()) return Wait::kExhausted;
  const std::uint32_t index = arrived_.front();
  arrived_.pop_front();
  Slot& slot = slots_[index];
  out = {index, slot.ok, std::exchange(slot.bytes, {}), std::exchange(slot.held, {})};
  slot.state = Slot::kTaken;
  return Wait::kReady;
}

bool TaskJob::set(Outcome outcome) {
  bool finished;
  {
    const std::lock_guard lock(mutex_);
    if (outcome.index >= slots_.size()) slots_.resize(outcome.index + 1);
    Slot& slot = slots_[outcome.index];
    if (slot.state != Slot::kEmpty) return false;
    slot = {Slot::kFull, outcome.ok, std::move(outcome.bytes), std::move(outcome.held)};
    if (!outcome.ok && !first_failure_) first_failure_ = outcome.index;
    arrived_.push_back(outcome.index);
    ++done_;
    finished = finished_locked();
  }
  changed_.notify_all();
  return finished;
}

}  // namespace shoal::ipc
