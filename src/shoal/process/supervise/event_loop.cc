#include "shoal/process/supervise/event_loop.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <future>
#include <system_error>
#include <utility>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/process/signals.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::process {

EventLoop::EventLoop() {
  const auto blocked = os::BlockSignals::all();  // the thread inherits the mask
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw SystemError("start the supervisor thread", error.code().value());
  }
  call([] {});  // it has declared itself as an OwnThread: a fork may follow at once
}

EventLoop::~EventLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify();
  thread_.join();
}

void EventLoop::post(Handler handler) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(handler));
  }
  wake_.notify();
}

void EventLoop::call(const std::function<void()>& task) {
  std::promise<void> done;
  post([&] {
    try {
      task();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

void EventLoop::watch(int fd, short events, Handler handler) {
  watches_[fd] = {events, std::make_shared<Handler>(std::move(handler))};
}

void EventLoop::unwatch(int fd) { watches_.erase(fd); }

void EventLoop::after(std::chrono::milliseconds delay, Handler handler) {
  timers_.emplace(os::deadline_after(delay), std::move(handler));
}

void EventLoop::run() {
  const OwnThread declared;
  ::pthread_setname_np(::pthread_self(), "shoal-super");
  watch(wake_.fd(), POLLIN, [this] { wake_.clear(); });
  for (;;) {
    run_posted();
    run_due_timers();
    {
      const std::lock_guard lock(mutex_);
      if (!posted_.empty()) continue;
      if (stopping_) return;
    }
    wait_for_descriptors();
  }
}

void EventLoop::run_posted() {
  std::deque<Handler> handlers;
  {
    const std::lock_guard lock(mutex_);
    handlers.swap(posted_);
  }
  for (const Handler& handler : handlers) handler();
}

void EventLoop::run_due_timers() {
  while (!timers_.empty() && timers_.begin()->first <= os::Clock::now()) {
    const Handler handler = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    handler();
  }
}

void EventLoop::wait_for_descriptors() {
  std::vector<pollfd> entries;
  entries.reserve(watches_.size());
  for (const auto& [fd, watch] : watches_) entries.push_back({fd, watch.events, 0});
  const os::Deadline next = timers_.empty() ? os::kNoDeadline : timers_.begin()->first;
  const std::timespec left = os::to_timespec(os::time_left(next));
  const int ready =
      ::ppoll(entries.data(), entries.size(), next == os::kNoDeadline ? nullptr : &left, nullptr);
  if (ready <= 0) return;  // a timer is due; EINTR does not happen with every signal blocked
  for (const pollfd& entry : entries) {
    if (entry.revents == 0) continue;
    const auto found = watches_.find(entry.fd);  // an earlier handler may have dropped it
    if (found == watches_.end()) continue;
    const auto handler = found->second.handler;
    (*handler)();
  }
}

}  // namespace shoal::process
