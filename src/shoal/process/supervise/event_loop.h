// A thread that waits for descriptors and timers and runs their handlers, one at a time.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "shoal/os/clock.h"
#include "shoal/os/eventfd.h"

namespace shoal::process {

/// A thread and what it waits for; a resource.
///
/// Threads: post() and call() from any thread; the rest from handlers, which run in the loop's own
/// thread. All signals are blocked in that thread, and it is an OwnThread.
/// Processes: of this one.
/// Invariants: handlers do not throw, and do not block beyond a system call.
/// Death: a child that is spawned in this thread may use PR_SET_PDEATHSIG: the thread lives as long
/// as the loop, and ends with the process at the latest.
/// Fork: a child must neither use nor destroy it; its thread does not exist there.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  /// Throws SystemError when the thread or its eventfd cannot be made.
  EventLoop();
  /// Ends the thread after the handlers that were posted before. Not from the loop's own thread.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs `handler` in the loop's thread, soon.
  void post(Handler handler);

  /// Runs `task` in the loop's thread and waits for it; what it throws is thrown here.
  void call(const std::function<void()>& task);

  /// Runs `handler` whenever `fd` has one of `events` (POLLIN, POLLOUT), a hang-up or an error;
  /// replaces the handler that `fd` had.
  void watch(int fd, short events, Handler handler);
  void unwatch(int fd);

  /// Runs `handler` once after `delay`.
  void after(std::chrono::milliseconds delay, Handler handler);

 private:
  struct Watch {
    short events;
    std::shared_ptr<Handler> handler;  // shared: a handler may unwatch itself
  };

  void run();
  void run_posted();
  void run_due_timers();
  void wait_for_descriptors();

  os::EventFd wake_;
  std::mutex mutex_;  // guards posted_ and stopping_
  std::deque<Handler> posted_;
  bool stopping_ = false;
  std::unordered_map<int, Watch> watches_;       // the loop's thread alone
  std::multimap<os::Deadline, Handler> timers_;  // the loop's thread alone
  std::thread thread_;
};

}  // namespace shoal::process
