// The rows of one batch: many claim and fill them, and one closes the batch and takes what is
// there.
//
//   claims word: bit 31 set while the batch is closed, bits 30..0 rows claimed
//   row word:    a RowState
//
// A claim does not name its claimer. So a claimer announces itself first, in a word of its own, and
// takes the announcement back when its rows are ready. After close(), every claimer of the batch
// has announced itself, and the owner can tell a row whose claimer is slow from one whose claimer
// is dead.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;  // 0: the batch is full or closed
};

/// Lives in shared memory; all zero bytes is its first state: open, no row claimed.
///
/// Threads, processes: one owner opens and closes, any number claim.
/// Invariants: a row is claimed once between open() and close().
/// Memory ordering: what a claimer wrote before claim() is visible after the close() that counts
/// its rows, and what the owner wrote before open() after a claim() that succeeded ([claims], a
/// release sequence through all claims).
/// Death: a claimer that dies leaves a row that is never ready.
/// Fork: parent and child use the same word.
template <class Atomics>
class BasicRowClaims {
 public:
  /// Takes up to `count` of the rows that are left of `capacity`.
  RowRange claim(std::uint32_t count, std::uint32_t capacity) noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange synchronises
    for (;;) {
      if ((word & kClosed) != 0 || word >= capacity) return {};
      const std::uint32_t taken = std::min(count, capacity - word);
      if (word_.compare_exchange_weak(word, word + taken, std::memory_order_acq_rel,  // [claims]
                                      std::memory_order_relaxed)) {
        return {word, taken};
      }
    }
  }

  std::uint32_t claimed() const noexcept {
    return word_.load(std::memory_order_acquire) & ~kClosed;  // [claims]
  }

  /// Owner: nobody claims from here on. Returns how many rows are claimed.
  std::uint32_t close() noexcept {
    return word_.fetch_or(kClosed, std::memory_order_acq_rel) & ~kClosed;  // [claims]
  }

  /// Owner: no row is claimed.
  void open() noexcept { word_.store(0, std::memory_order_release); }  // [claims]

 private:
  static constexpr std::uint32_t kClosed = 1u << 31;

  typename Atomics::Word word_;
};

enum class RowState : std::uint32_t {
  kEmpty,     // not written yet
  kReady,     // complete
  kMissed,    // the batch left without it; its claimer may still write
  kReturned,  // … and has seen so: it writes no more
};

/// One row's word; all zero bytes is its first state, empty.
///
/// Threads, processes: its claimer calls ready(), the owner the rest.
/// Memory ordering: what was written before ready() is visible after state() said kReady ([row]);
/// what was written before ready() said that it was missed happened before state() says kReturned.
/// Death: the claimer leaves kEmpty or kMissed.
/// Fork: parent and child use the same word.
template <class Atomics>
class BasicRowWord {
 public:
  /// False: the batch has left without the row, which is the owner's again.
  bool ready() noexcept {
    std::uint32_t word = value(RowState::kEmpty);
    if (word_.compare_exchange_strong(word, value(RowState::kReady),
                                      std::memory_order_release,  // [row]
                                      std::memory_order_relaxed)) {
      return true;
    }
    word_.store(value(RowState::kReturned), std::memory_order_release);  // [row]
    return false;
  }

  RowState state() const noexcept {
    return static_cast<RowState>(word_.load(std::memory_order_acquire));  // [row]
  }

  /// Owner: leave without it. False: it has become ready.
  bool miss() noexcept {
    std::uint32_t word = value(RowState::kEmpty);
    return word_.compare_exchange_strong(word, value(RowState::kMissed),
                                         std::memory_order_acq_rel,  // [row]
                                         std::memory_order_acquire);
  }

  /// Owner, while its batch is closed: empty again. Relaxed: open() publishes it.
  void clear() noexcept { word_.store(value(RowState::kEmpty), std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t value(RowState state) noexcept {
    return static_cast<std::uint32_t>(state);
  }

  typename Atomics::Word word_;
};

using RowClaims = BasicRowClaims<SystemAtomics>;
using RowWord = BasicRowWord<SystemAtomics>;
static_assert(sizeof(RowClaims) == 4 && sizeof(RowWord) == 4);

}  // namespace shoal::sync
