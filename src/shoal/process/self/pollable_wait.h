// A wait that poll() can wait for: a thread waits, and makes a descriptor readable.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "shoal/os/clock.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/process/making_process.h"

namespace shoal::process {

/// What is waited for in shared memory (a futex) has no descriptor, and whoever ends the wait is not
/// to pay for those that nobody polls. The thread is there from the first arm() on.
///
/// Threads: one at a time; `wait` runs in the thread of its own.
/// Processes, death: of this one; who waits for somebody that has died is woken all the same, every
/// kSlice.
/// Fork: a child must not use it; its destructor there lets go of the thread.
class PollableWait {
 public:
  /// Waits until it is there, `deadline` at the latest; true: it is.
  using Wait = std::function<bool(os::Deadline deadline)>;

  static constexpr std::chrono::milliseconds kSlice{20};

  /// Throws SystemError.
  PollableWait() = default;
  ~PollableWait();
  PollableWait(const PollableWait&) = delete;
  PollableWait& operator=(const PollableWait&) = delete;

  /// Makes fd() unreadable until `wait` returns, kSlice at the latest: it may have to look after
  /// those that it waits for. What was armed before goes on where it has not returned yet. Once for
  /// each time that fd() was readable.
  void arm(Wait wait);
  /// Makes fd() readable now.
  void notify() noexcept { event_.notify(); }

  int fd() const noexcept { return event_.fd(); }

 private:
  void run();

  os::EventFd event_;
  const os::MakingProcess maker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Wait wait_;  // null: nothing is armed
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace shoal::process
