// Lets close() come while a call is inside: from the handler of a signal, in the midst of the call, or from another thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "shoal/os/clock.h"
#include "shoal/os/process/making_process.h"

namespace shoal::vector {

/// Of one VectorEnv. Who calls it from a language with threads and handlers of signals has an Inside for each call.
///
/// Invariant: one call is inside at a time, or one close().
/// Threads: any.
/// Processes, death: the one that made it, and ends with it.
/// Fork: in a child, a call that another thread was in at the fork never leaves, and close() waits for none.
class CallGate {
 public:
  /// A call of this thread, from here to the end of the scope.
  class Inside {
   public:
    /// Throws InvalidState where a call is inside already, or another thread waits to close.
    explicit Inside(CallGate& gate);
    /// Closes what this thread was asked to close meanwhile.
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    CallGate& gate_;
    Inside* const outer_;  // of this thread, at another gate
    friend class CallGate;
  };

  CallGate() = default;
  CallGate(const CallGate&) = delete;
  CallGate& operator=(const CallGate&) = delete;

  /// Asks the call that is inside to end, and runs `close` when it has left: true. False where it is this thread's own call,
  /// which runs `close` as it leaves. `wait(until)` waits for another thread's call, in turns; what it throws is thrown here,
  /// and nothing is closed.
  bool close(std::function<void()> close, const std::function<void(os::Deadline)>& wait);
  /// Until the call that is inside has left, `deadline` at the latest.
  void await_leaving(os::Deadline deadline);

  /// Of a call that waits, every now and then: throws InvalidState where something that it is inside of is to be closed.
  static void check();

 private:
  enum class Entry { kInside, kOwnCall, kOtherThread };
  Entry enter() noexcept;
  bool is_own_call() const noexcept;
  void closed(const std::function<void()>& close);
  void leave() noexcept;

  os::MakingProcess maker_;
  std::atomic<const void*> thread_{nullptr};  // whose call is inside
  std::atomic<bool> closing_{false};
  std::function<void()> close_;  // of the thread whose call is inside
  std::mutex mutex_;
  std::condition_variable left_;
};

}  // namespace shoal::vector
