// Named counters in shared memory, for telemetry.
//
//   offset   bytes  field
//        0       4  magic    "SCNT"
//        4       4  count
//        8      56  zero
//   64 + 64 i   8  value of counter i
//   72 + 64 i  56  its name, zero-terminated
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::shm {

/// One counter on its own cache line.
struct alignas(64) CounterSlot {
  static constexpr std::size_t kMaxNameBytes = 55;

  std::atomic<std::uint64_t> value;
  char name[kMaxNameBytes + 1];
};
static_assert(sizeof(CounterSlot) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

/// Borrows one counter. A value.
///
/// Threads and processes: any may add. Memory ordering: relaxed; a counter orders nothing else.
class Counter {
 public:
  explicit Counter(CounterSlot* slot) noexcept : slot_(slot) {}

  void add(std::uint64_t n = 1) noexcept { slot_->value.fetch_add(n, std::memory_order_relaxed); }
  void set(std::uint64_t n) noexcept { slot_->value.store(n, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return slot_->value.load(std::memory_order_relaxed); }
  std::string_view name() const noexcept { return slot_->name; }

 private:
  CounterSlot* slot_;
};

/// A table of counters whose names are fixed when it is made; borrows its memory.
///
/// Death: a process that dies while adding leaves the sum of what it added. Fork: the child adds to
/// the same counters.
class Counters {
 public:
  /// Bytes that a table of `count` counters takes.
  static std::size_t bytes(std::size_t count) noexcept;

  /// Makes a table in `memory` (64-byte aligned). Throws InvalidArgument when it does not fit, or a
  /// name is empty, longer than kMaxNameBytes or there twice.
  static Counters create(std::span<std::byte> memory, std::span<const std::string> names);

  /// Reads a table that another process made. Throws Error when there is none.
  static Counters attach(std::span<std::byte> memory);

  std::size_t size() const noexcept { return slots_.size(); }
  Counter operator[](std::size_t index) const noexcept { return Counter(&slots_[index]); }
  std::optional<Counter> find(std::string_view name) const noexcept;

 private:
  explicit Counters(std::span<CounterSlot> slots) noexcept : slots_(slots) {}

  std::span<CounterSlot> slots_;
};

}  // namespace shoal::shm
