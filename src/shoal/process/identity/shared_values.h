// A small table of named values that several processes read and write.
//
//   offset            bytes     field
//        0                4     magic       "SVAL"
//        4                4     zero
//        8                8     capacity    bytes of each of the two halves
//       16                8     generation  the half in force is generation % 2
//       24               40     zero
//       64               64     the lock
//      128       8 + capacity   half 0: u64 bytes used, then the entries
//      …         8 + capacity   half 1   (each half begins at a multiple of 64)
//
//   an entry: u64 version, u32 bytes of the name, u32 bytes of the value, name, value
//
// A write copies the half in force into the other one, with its change, and then adds 1 to the
// generation. So the half in force is whole, whoever dies on whichever line.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/sync/robust_lock.h"

namespace shoal::process {

struct alignas(64) SharedValuesHeader {
  std::uint32_t magic;
  std::uint32_t zero;
  std::uint64_t capacity;
  std::atomic<std::uint64_t> generation;
};
static_assert(sizeof(SharedValuesHeader) == 64);

/// A value to write; borrows.
struct NamedBytes {
  std::string_view name;
  std::span<const std::byte> bytes;
};

struct SharedValue {
  std::vector<std::byte> bytes;
  std::uint64_t version = 0;  // of the write that left it; 0: there is none
};

/// A value, which borrows its memory. Every call takes the lock for one copy of the table, and
/// throws TimedOut when the lock's holder is stopped (SIGSTOP) for longer than kLockTimeout.
///
/// Threads, processes: any.
/// Death: on any line: the write is in force whole, or not at all.
/// Fork: the child has the same table.
class SharedValues {
 public:
  static constexpr std::chrono::seconds kLockTimeout{10};

  /// Bytes that a table takes whose entries take `capacity`.
  static std::size_t bytes(std::size_t capacity) noexcept;
  /// Makes an empty table in zeroed `memory`. Throws InvalidArgument when it does not fit.
  static SharedValues create(std::span<std::byte> memory, std::size_t capacity);
  /// Throws Error when there is none.
  static SharedValues attach(std::span<std::byte> memory);

  std::optional<SharedValue> get(std::string_view name) const;
  /// Names, the oldest first.
  std::vector<std::string> names() const;

  /// Writes values of different names, all of them at once. With `expected`, only if the first one
  /// is of that version now (0: is not there); returns whether they were written. Throws
  /// InvalidArgument, and writes none, when the table would grow over its capacity.
  bool set(std::span<const NamedBytes> values, std::optional<std::uint64_t> expected = {}) const;
  bool set(std::string_view name, std::span<const std::byte> value,
           std::optional<std::uint64_t> expected = {}) const;
  /// Takes a value out, with `expected` as above; returns whether it did.
  bool erase(std::string_view name, std::optional<std::uint64_t> expected = {}) const;
  void clear() const;

  std::size_t capacity() const noexcept { return capacity_; }

  /// For others who need one writer at a time in the same group of processes.
  sync::RobustLock& lock() const noexcept { return *lock_; }

 private:
  SharedValues(SharedValuesHeader* header, std::size_t capacity) noexcept;

  std::byte* half(std::uint64_t generation) const noexcept;
  std::span<const std::byte> entries() const;
  void publish(std::span<const std::byte> entries) const;

  SharedValuesHeader* header_;
  sync::RobustLock* lock_;
  std::size_t capacity_;
};

/// Holds a RobustLock for a scope; a resource. Throws TimedOut, saying that a stopped process holds
/// `what`.
///
/// Threads: it is destroyed in the thread that made it.
/// Processes: any that map the lock.
/// Death: of the holder: the next one gets the lock, and is not told. So what the lock guards must
/// be whole at every line of its writers.
class HeldLock {
 public:
  HeldLock(sync::RobustLock& lock, const char* what);
  ~HeldLock() { lock_.unlock(); }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;

 private:
  sync::RobustLock& lock_;
};

}  // namespace shoal::process
