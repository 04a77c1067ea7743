// A second line of execution in the same thread, which runs when it is told to: who would wait for another thread
// runs it instead, and what happens is the same each time.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace shoal::fuzz {

/// A stack, and what runs on it; a resource. It runs one body after the other: a stack costs more than most of them.
///
/// Threads: one, which makes it.
/// Invariants: a body that has begun has ended before the fiber is destroyed or given another.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// `body` runs from the next resume() on; it lets nothing pass. After the one before has ended.
  void give(std::function<void()> body);
  /// A body was given that has not ended.
  bool has_body() const noexcept { return static_cast<bool>(body_); }
  /// Goes on with the body until it pauses or ends.
  void resume();
  /// From inside the body: returns when resume() is called again.
  void pause();

 private:
  static void enter(unsigned high, unsigned low);

  std::byte* memory_ = nullptr;  // the stack, above a page that nobody may touch
  ucontext_t inside_{}, outside_{};
  std::function<void()> body_;
  bool is_inside_ = false;
  // The stack of who resumed, as AddressSanitizer wants to be told.
  const void* outside_stack_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

}  // namespace shoal::fuzz
