#include "shoal/vector/call_gate.h"

#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::vector {
namespace {

/// Of a wait for another thread's call, which looks at closing_ as often.
constexpr std::chrono::milliseconds kTurn{50};

thread_local CallGate::Inside* innermost = nullptr;

/// Stands for this thread.
const void* this_thread() noexcept { return &innermost; }

}  // namespace

CallGate::Inside::Inside(CallGate& gate) : gate_(gate), outer_(innermost) {
  // relaxed: a hint to let the other thread in
  if (gate.closing_.load(std::memory_order_relaxed) && !gate.is_own_call()) {
    throw InvalidState("another thread closes these environments; make new ones to go on");
  }
  switch (gate.enter()) {
    case Entry::kOwnCall:
      throw InvalidState(
          "a call of these environments is under way, and this one comes from within it: call them "
          "when it has returned");
    case Entry::kOtherThread:
      throw InvalidState(
          "another thread is in a call of these environments: one thread at a time may use them; "
          "only close(), health() and "
          "counters may come meanwhile");
    case Entry::kInside:
      innermost = this;
  }
}

CallGate::Inside::~Inside() {
  innermost = outer_;
  if (const auto close = std::exchange(gate_.close_, {})) {
    try {
      gate_.closed(close);
    } catch (const std::exception& failure) {  // there is nobody to tell
      os::log(os::LogLevel::kError, "vector", "while it was closed: {}", failure.what());
    }
  }
  gate_.leave();
}

CallGate::Entry CallGate::enter() noexcept {
  const void* inside = nullptr;
  // acquire: what the call before did
  if (thread_.compare_exchange_strong(inside, this_thread(), std::memory_order_acquire)) {
    return Entry::kInside;
  }
  return inside == this_thread() ? Entry::kOwnCall : Entry::kOtherThread;
}

void CallGate::leave() noexcept {
  thread_.store(nullptr, std::memory_order_release);
  // relaxed: who waits looks again at every turn, so a notice that is missed costs one
  if (!closing_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  left_.notify_all();
}

bool CallGate::close(std::function<void()> close, const std::function<void(os::Deadline)>& wait) {
  if (!maker_.is_this()) {
    close();
    return true;
  }
  for (;;) {
    closing_.store(true, std::memory_order_relaxed);  // relaxed: a hint to end
    switch (enter()) {
      case Entry::kInside: {
        const struct Leaving {
          CallGate& gate;
          ~Leaving() { gate.leave(); }
        } leaving{*this};
        closed(close);
        return true;
      }
      case Entry::kOwnCall:
        close_ = std::move(close);
        return false;
      case Entry::kOtherThread:
        try {
          wait(os::deadline_after(kTurn));
        } catch (...) {
          closing_.store(false, std::memory_order_relaxed);  // relaxed: they go on
          throw;
        }
    }
  }
}

// Inside. What comes later finds them closed.
void CallGate::closed(const std::function<void()>& close) {
  const struct Done {
    std::atomic<bool>& closing;
    ~Done() { closing.store(false, std::memory_order_relaxed); }  // relaxed: no data goes with it
  } done{closing_};
  close();
}

bool CallGate::is_own_call() const noexcept {
  return thread_.load(std::memory_order_relaxed) == this_thread();
}

void CallGate::await_leaving(os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  left_.wait_until(lock, deadline,
                   [&] { return thread_.load(std::memory_order_relaxed) == nullptr; });
}

void CallGate::check() {
  for (const Inside* at = innermost; at != nullptr; at = at->outer_) {
    if (!at->gate_.closing_.load(std::memory_order_relaxed)) continue;
    throw InvalidState("the environments were closed while a call of them was waited for");
  }
}

}  // namespace shoal::vector
