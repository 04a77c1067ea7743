// Named counters in shared memory that are made when they are first asked for.
//
//   offset   bytes  field
//        0       4  magic     "SCNT"
//        4       4  capacity
//        8       4  count     counters that have a name
//       12      52  zero
//   64 + 64 i   8  value of counter i
//   72 + 64 i  56  its name, zero-terminated
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace shoal::shm {

/// One counter on its own cache line.
struct alignas(64) CounterSlot {
  static constexpr std::size_t kMaxNameBytes = 55;

  std::atomic<std::int64_t> value;
  char name[kMaxNameBytes + 1];
};
static_assert(sizeof(CounterSlot) == 64 && std::atomic<std::int64_t>::is_always_lock_free);

/// The head of a table.
struct alignas(64) CountersHeader {
  std::uint32_t magic;
  std::uint32_t capacity;
  std::atomic<std::uint32_t> count;
};
static_assert(sizeof(CountersHeader) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

/// Borrows one counter. A value.
///
/// Threads and processes: any may add.
/// Memory ordering: relaxed; a counter orders nothing else.
class Counter {
 public:
  explicit Counter(CounterSlot* slot) noexcept : slot_(slot) {}

  /// Returns the new value.
  std::int64_t add(std::int64_t n = 1) noexcept {
    return slot_->value.fetch_add(n, std::memory_order_relaxed) + n;
  }
  void set(std::int64_t n) noexcept { slot_->value.store(n, std::memory_order_relaxed); }
  std::int64_t value() const noexcept { return slot_->value.load(std::memory_order_relaxed); }
  std::string_view name() const noexcept {
    return {slot_->name, ::strnlen(slot_->name, sizeof slot_->name)};
  }

 private:
  CounterSlot* slot_;
};

/// A table of counters that only grows; borrows its memory.
///
/// Threads and processes: any may find; find_or_add() wants one at a time, by a lock that is not
/// here.
/// Memory ordering: a name is written before the count that covers it (release, acquire: [named]).
/// Death: who dies while adding a name leaves a slot that the next one takes; who dies while adding
/// to a value leaves the sum.
/// Fork: the child adds to the same counters.
class Counters {
 public:
  /// Bytes that a table of `capacity` counters takes.
  static std::size_t bytes(std::size_t capacity) noexcept;

  /// Makes an empty table in zeroed `memory` (64-byte aligned). Throws InvalidArgument when it does
  /// not fit.
  static Counters create(std::span<std::byte> memory, std::size_t capacity);

  /// Reads a table that another process made. Throws Error when there is none.
  static Counters attach(std::span<std::byte> memory);

  std::size_t size() const noexcept;
  std::size_t capacity() const noexcept { return slots_.size(); }
  Counter operator[](std::size_t index) const noexcept { return Counter(&slots_[index]); }
  std::optional<Counter> find(std::string_view name) const noexcept;

  /// Throws InvalidArgument for a name that is empty, too long or has a zero byte, and when the
  /// table is full.
  Counter find_or_add(std::string_view name) const;

 private:
  Counters(CountersHeader* header, std::span<CounterSlot> slots) noexcept
      : header_(header), slots_(slots) {}

  CountersHeader* header_;
  std::span<CounterSlot> slots_;
};

}  // namespace shoal::shm
