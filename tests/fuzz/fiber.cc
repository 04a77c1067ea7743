#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "shoal/os/error.h"

extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack, const void* stack,
                                                          std::size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack, const void** stack,
                                                           std::size_t* bytes);
}

namespace shoal::fuzz {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

void arrive(void* fake_stack, const void** from, std::size_t* bytes) {
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
}

/// Goes on where `to` was left; returns when somebody goes on here. Not swapcontext(): AddressSanitizer warns of it.
void change(ucontext_t& here, const ucontext_t& to, const void* stack, std::size_t bytes,
            const void** from, std::size_t* from_bytes) {
  void* fake_stack = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(&fake_stack, stack, bytes);
  volatile bool is_back = false;
  ::getcontext(&here);
  if (!is_back) {
    is_back = true;
    ::setcontext(&to);
  }
  arrive(fake_stack, from, from_bytes);
}

}  // namespace

Fiber::Fiber() {
  void* const memory = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw SystemError("map a stack");
  memory_ = static_cast<std::byte*>(memory);
  ::mprotect(memory_, kGuardBytes, PROT_NONE);
  ::getcontext(&inside_);
  inside_.uc_stack.ss_sp = memory_ + kGuardBytes;
  inside_.uc_stack.ss_size = kStackBytes;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&inside_, reinterpret_cast<void (*)()>(&enter), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
}

Fiber::~Fiber() { ::munmap(memory_, kGuardBytes + kStackBytes); }

void Fiber::give(std::function<void()> body) {
  SHOAL_CHECK(!has_body(), "a fiber has one body at a time");
  body_ = std::move(body);
}

void Fiber::resume() {
  SHOAL_CHECK(!is_inside_, "a fiber is resumed from outside");
  if (!has_body()) return;
  is_inside_ = true;
  change(outside_, inside_, memory_ + kGuardBytes, kStackBytes, nullptr, nullptr);
}

void Fiber::pause() {
  SHOAL_CHECK(is_inside_, "a fiber pauses from inside");
  is_inside_ = false;
  change(inside_, outside_, outside_stack_, outside_bytes_, &outside_stack_, &outside_bytes_);
}

void Fiber::enter(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  arrive(nullptr, &self.outside_stack_, &self.outside_bytes_);
  for (;;) {
    self.body_();
    self.body_ = nullptr;
    self.pause();
  }
}

}  // namespace shoal::fuzz
