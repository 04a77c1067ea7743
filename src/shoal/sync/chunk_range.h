// The chunks of one worker's share of a round, from which everybody may take: the owner first, and
// whoever has run dry.
//
//   offset  bytes  field
//        0      4  word: bits 31..16 the end, bits 15..0 the next chunk to take; equal when empty
//        4    124  padding: the word has its cache lines to itself
#pragma once

#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// All zero bytes is its first state: empty.
///
/// Threads, processes: one opens a round, when all that was taken of the round before is done (a
/// Gather says so); any number take.
/// Invariants: a chunk is taken once. A taker that comes late, with rounds in between, finds
/// nothing or takes a chunk of the round that is open now, by that round's rules.
/// Memory ordering: what was written before open() is visible to who takes one of its chunks
/// (release/acquire on the word, a release sequence through all takers, [chunks]).
/// Death: who dies with a chunk in hand leaves its round open for ever; not for processes that may
/// be killed.
template <class Atomics>
class BasicChunkRange {
 public:
  static constexpr int kMaxChunks = 0xffff;
  static constexpr int kNone = -1;

  /// Offers chunks [first, end), both at most kMaxChunks.
  void open(int first, int end) noexcept {
    word_.store(static_cast<std::uint32_t>(end) << kEndShift | static_cast<std::uint32_t>(first),
                std::memory_order_release);  // [chunks]
  }

  /// The next chunk, or kNone.
  int take() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange below synchronises
    do {
      if (left(word) <= 0) return kNone;
    } while (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire,  // [chunks]
                                          std::memory_order_relaxed));
    return static_cast<int>(word & kNextMask);
  }

  /// How many are left, at this moment: to choose whom to take from.
  int left() const noexcept {
    return left(word_.load(std::memory_order_relaxed));  // relaxed: a hint
  }

 private:
  static constexpr std::uint32_t kNextMask = 0xffff;
  static constexpr std::uint32_t kEndShift = 16;

  static int left(std::uint32_t word) noexcept {
    return static_cast<int>(word >> kEndShift) - static_cast<int>(word & kNextMask);
  }

  alignas(128) typename Atomics::Word word_;
};

using ChunkRange = BasicChunkRange<SystemAtomics>;
static_assert(sizeof(ChunkRange) == 128 && alignof(ChunkRange) == 128);

}  // namespace shoal::sync
