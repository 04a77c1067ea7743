// One value of many bytes that one process writes and any number read, whole and by version.
//
//   word 0                      the version that readers take; 0: none yet
//   words 1 + s * (1 + n) …     slot s: its version (0: being written), then n words of the value
//
// Version v lies in slot v % slots. The writer fills the slot after the newest one and then
// publishes it, so a reader is disturbed only where slots - 1 newer versions come while it copies;
// it then starts over with the newest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// A view of words in shared memory, whose first state is all zero bytes; a value.
///
/// Threads, processes: one writes, any number read. A reader registers nowhere.
/// Invariants: read() gives the bytes of exactly one write().
/// Memory ordering: a slot's words are released and acquired one by one ([slot]): whoever sees one
/// word of a newer value also sees that the slot's version has changed. What the writer did before
/// write() is visible after the read() that gives its version ([version]).
/// Death: of a reader, nothing; of the writer, on any line: readers keep the version before, and
/// the next writer goes on from there.
/// Fork: parent and child use the same words; only one of them writes.
template <class Atomics>
class BasicVersionedSlots {
 public:
  using Word = typename Atomics::Word64;
  static constexpr std::size_t kMinSlots = 2;

  static constexpr std::size_t words_of(std::size_t bytes) noexcept {
    return (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  }
  /// Words that a value of so many bytes needs in all.
  static constexpr std::size_t words_needed(std::size_t bytes, std::size_t slots) noexcept {
    return 1 + slots * (1 + words_of(bytes));
  }

  /// Borrows words_needed(bytes, slots) words. `slots` is kMinSlots or more.
  BasicVersionedSlots(Word* words, std::size_t bytes, std::size_t slots) noexcept
      : words_(words), bytes_(bytes), slots_(slots) {}

  std::size_t bytes() const noexcept { return bytes_; }

  /// The newest version; 0: nothing was written yet.
  std::uint64_t version() const { return words_[0].load(std::memory_order_acquire); }  // [version]

  /// Writes the next version from bytes() bytes and returns its number, counted from 1.
  std::uint64_t write(const std::byte* value) {
    const std::uint64_t next = words_[0].load(std::memory_order_relaxed) + 1;  // ours alone
    Word* const slot = slot_of(next);
    slot[0].store(0, std::memory_order_relaxed);  // released by each word that follows
    for (std::size_t i = 0; i < bytes_; i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, value + i, std::min(sizeof word, bytes_ - i));
      slot[1 + i / sizeof word].store(word, std::memory_order_release);  // [slot]
    }
    slot[0].store(next, std::memory_order_release);    // [slot]
    words_[0].store(next, std::memory_order_release);  // [version]
    return next;
  }

  /// Copies the newest version into `value`, bytes() bytes, and returns its number; 0 and nothing
  /// where there is none yet.
  std::uint64_t read(std::byte* value) const {
    for (;;) {
      const std::uint64_t newest = version();
      if (newest == 0 || try_read(newest, value)) return newest;
    }
  }

 private:
  Word* slot_of(std::uint64_t version) const noexcept {
    return words_ + 1 + version % slots_ * (1 + words_of(bytes_));
  }

  bool try_read(std::uint64_t version, std::byte* value) const {
    const Word* const slot = slot_of(version);
    if (slot[0].load(std::memory_order_acquire) != version) return false;  // [slot]
    for (std::size_t i = 0; i < bytes_; i += sizeof(std::uint64_t)) {
      const std::uint64_t word =
          slot[1 + i / sizeof word].load(std::memory_order_acquire);  // [slot]
      std::memcpy(value + i, &word, std::min(sizeof word, bytes_ - i));
    }
    return slot[0].load(std::memory_order_relaxed) == version;  // ordered by the loads above
  }

  Word* words_;
  std::size_t bytes_;
  std::size_t slots_;
};

using VersionedSlots = BasicVersionedSlots<SystemAtomics>;

}  // namespace shoal::sync
