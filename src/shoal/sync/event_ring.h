// Records of one size that any thread adds and others read while they are still there. Nobody waits:
// a writer that finds its slot being written leaves its record out, and a reader that is a lap late
// is told what it has lost.
//
//   slot s, four words: stamp, then the record; record n lies in slot n % slots
//   stamp: n + 1: record n is whole; 0: there was none yet; kWriting: it is being written
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// A view of words in shared memory, whose first state is all zero bytes; a value.
///
/// Threads, processes: any number write, any number read. A reader registers nowhere.
/// Invariants: read() gives the words of exactly one push().
/// Memory ordering: a slot's words are released and acquired one by one ([slot]): whoever sees a
/// word of a newer record also sees that the stamp has changed. Taking a slot acquires what its last
/// writer released, so that stamps of one slot only change by who has it.
/// Death: of a reader, nothing. Of a writer, on any line: its slot reads as lost, and if it was
/// being written nobody uses it again.
/// Fork: parent and child use the same words.
template <class Atomics>
class BasicEventRing {
 public:
  using Word = typename Atomics::Word64;
  using Record = std::array<std::uint64_t, 3>;
  static constexpr std::size_t kSlotWords = 4;
  static constexpr std::uint64_t kWriting = ~std::uint64_t{0};

  enum class Outcome {
    kRead,
    kNotYet,  // it is being written, or will be
    kLost,    // it was overwritten, or left out
  };

  BasicEventRing() noexcept = default;
  /// Borrows the counter of records, and `slots` times kSlotWords words; a power of two.
  BasicEventRing(Word* next, Word* words, std::size_t slots) noexcept
      : next_(next), words_(words), slots_(slots) {}

  std::size_t slots() const noexcept { return slots_; }

  /// How many have been begun; the number of the next one.
  std::uint64_t next() const { return next_->load(std::memory_order_relaxed); }

  void push(const Record& record) {
    // relaxed: it hands out numbers, and nothing else
    const std::uint64_t number = next_->fetch_add(1, std::memory_order_relaxed);
    Word* const slot = slot_of(number);
    if (slot[0].exchange(kWriting, std::memory_order_acquire) == kWriting) return;  // [slot]
    for (std::size_t i = 0; i < record.size(); ++i) {
      slot[1 + i].store(record[i], std::memory_order_release);  // [slot]
    }
    slot[0].store(number + 1, std::memory_order_release);  // [slot]
  }

  [[nodiscard]] Outcome read(std::uint64_t number, Record& record) const {
    const Word* const slot = slot_of(number);
    const std::uint64_t stamp = slot[0].load(std::memory_order_acquire);  // [slot]
    if (stamp == number + 1) {
      for (std::size_t i = 0; i < record.size(); ++i) {
        record[i] = slot[1 + i].load(std::memory_order_acquire);  // [slot]
      }
      // relaxed: ordered by the loads above
      if (slot[0].load(std::memory_order_relaxed) == stamp) return Outcome::kRead;
      return Outcome::kLost;
    }
    const std::uint64_t begun = next();
    // A lap later nobody finishes it any more.
    if (number + slots_ < begun) return Outcome::kLost;
    return Outcome::kNotYet;
  }

 private:
  Word* slot_of(std::uint64_t number) const noexcept {
    return words_ + (number & (slots_ - 1)) * kSlotWords;
  }

  Word* next_ = nullptr;
  Word* words_ = nullptr;
  std::size_t slots_ = 0;
};

using EventRing = BasicEventRing<SystemAtomics>;

}  // namespace shoal::sync
