// The slots of a batch, claimed in arrival order: who has a result claims the next slot of the open
// batch, writes there, and marks the slot ready.
//
// Batch `sequence` has the tickets [sequence * slots, (sequence + 1) * slots). Its owner opens it
// in one of a few blocks of memory, so a block serves many batches, one after the other, in any
// order.
//
//   slot word:  bits 63..32 the batch's sequence, 31..18 how many slots behind this one were
//               claimed with it, 17..2 who claimed it, 1..0 SlotState
//
// A claim is one exchange on a slot's own word, and names the claimer. So the slots of a claimer
// that dies are found, and the owner fills them. Several neighbouring slots can be claimed by one
// exchange on the first one's word: a *run*. The words of the others stay as they are until those
// slots are ready. Nobody looks at them before, since everybody goes from the first slot of a run
// to the first slot of the next run. The cursor only says where to look first; who finds a slot
// taken advances it, so nobody waits for a claimer that stands still.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

enum class SlotState : std::uint8_t { kFree, kClaimed, kReady };

/// A slot word, unpacked; a value.
struct SlotWord {
  std::uint32_t sequence = 0;
  std::uint32_t claimer = 0;  // below 2^16; 0 while it is free
  SlotState state = SlotState::kFree;
  std::uint32_t more = 0;  // in a run's first word: how many places behind it were claimed with it

  constexpr std::uint64_t packed() const noexcept {
    return std::uint64_t{sequence} << 32 | std::uint64_t{more} << 18 | std::uint64_t{claimer} << 2 |
           static_cast<std::uint64_t>(state);
  }
  static constexpr SlotWord unpacked(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word) >> 2 & 0xffff,
            static_cast<SlotState>(word & 3), static_cast<std::uint32_t>(word) >> 18};
  }
};

/// Where a claim lies: one slot, or a run of neighbours; a value.
struct SlotPlace {
  std::uint32_t sequence = 0;
  std::uint32_t block = 0;
  std::uint32_t slot = 0;   // the first
  std::uint32_t count = 1;  // of places
};

/// A view of the shared words; a value that borrows them. At first all of them are zero; a batch is
/// opened before anybody claims from it.
///
/// Threads, processes: one owner, which opens batches and takes them back; any number claim.
/// Invariants: slots are claimed in the order of their tickets, without a gap, and each once. The
/// slots of a run are of one batch, and its first is marked ready last. The owner sees to it that
/// there are never more claimers than open tickets: it opens a batch before it hands out the work
/// whose results may go there, and reuses a block only after all of its slots were ready.
/// Memory ordering: what was written before ready() is visible after is_ready() said so ([slot]).
/// What the owner wrote before open() is visible to a claimer of that batch, when handing out the
/// work was a release and taking it an acquire: the claims in between pass it on ([cursor],
/// [slot]).
/// Death: a claimer that dies leaves a word that names it, and says how many slots its run has.
/// Fork: parent and child use the same words.
/// Limit: a claimer that stands still for exactly 2^32 batches mistakes one for another.
template <class Atomics>
class BasicArrivalSlots {
 public:
  /// The most slots of one claim.
  static constexpr std::uint32_t kMaxRun = 1 << 14;
  /// Of a claim: far more than others can overtake it.
  static constexpr std::uint32_t kMostTries = 1 << 16;

  using Word64 = typename Atomics::Word64;
  using Word = typename Atomics::Word;

  BasicArrivalSlots() = default;
  /// `blocks` has a power of two of elements, more than are ever open at a time. `words` are the
  /// words of all blocks, `slots` of each.
  BasicArrivalSlots(Word64* cursor, std::span<Word> blocks, std::span<Word64> words,
                    std::uint32_t slots) noexcept
      : cursor_(cursor),
        blocks_(blocks),
        words_(words),
        slots_(slots),
        last_block_(static_cast<std::uint32_t>(words.size() / slots) - 1) {}

  /// Owner: batch `sequence` has its slots in `block`.
  void open(std::uint32_t sequence, std::uint32_t block) noexcept {
    // Relaxed: claimers learn of it with the work that the owner hands out next.
    const std::uint64_t free = SlotWord{.sequence = sequence}.packed();
    for (std::uint32_t slot = 0; slot < slots_; ++slot) {
      word(block, slot).store(free, std::memory_order_relaxed);
    }
    blocks_[sequence & (blocks_.size() - 1)].store(block, std::memory_order_relaxed);
  }

  /// Claims the next slot for `claimer`.
  SlotPlace claim(std::uint32_t claimer) noexcept { return claim_run(claimer, 1); }

  /// Claims the next slots for `claimer`, `claimer` + 1, …: up to `most` of them (at most kMaxRun),
  /// fewer where the batch ends. `count` is 0 where there is none: others have written over the words.
  SlotPlace claim_run(std::uint32_t claimer, std::uint32_t most) noexcept {
    std::uint64_t ticket = cursor_->load(std::memory_order_acquire);  // [cursor]
    for (std::uint32_t tries = 0; tries < kMostTries; ++tries) {
      const auto sequence = static_cast<std::uint32_t>(ticket / slots_);
      const auto slot = static_cast<std::uint32_t>(ticket % slots_);
      // Relaxed, and perhaps of a later batch when this claimer is late: then the word below is.
      const std::uint32_t block = std::min(
          blocks_[sequence & (blocks_.size() - 1)].load(std::memory_order_relaxed), last_block_);
      const std::uint32_t count = std::min(most, slots_ - slot);
      std::uint64_t expected = SlotWord{.sequence = sequence}.packed();
      const std::uint64_t mine =
          SlotWord{sequence, claimer, SlotState::kClaimed, count - 1}.packed();
      const bool taken = word(block, slot)
                             .compare_exchange_strong(expected, mine, std::memory_order_acq_rel,
                                                      std::memory_order_acquire);  // [slot]
      // Behind this run; behind its batch, where the word serves a later one already.
      const SlotWord found = SlotWord::unpacked(taken ? mine : expected);
      const std::uint64_t next =
          ticket + (found.sequence == sequence ? found.more + 1 : slots_ - slot);
      std::uint64_t here = ticket;
      cursor_->compare_exchange_strong(here, next, std::memory_order_acq_rel,
                                       std::memory_order_relaxed);  // [cursor]
      if (taken) return {sequence, block, slot, count};
      ticket = std::max(next, cursor_->load(std::memory_order_acquire));  // [cursor]
    }
    return {.count = 0};
  }

  /// Marks slots ready, whose content is complete: all of one claim, or one of them. The first slot
  /// of a run comes after the others.
  void ready(const SlotPlace& place, std::uint32_t claimer) noexcept {
    for (std::uint32_t i = place.count; i-- > 1;) {
      word(place.block, place.slot + i)
          .store(SlotWord{place.sequence, claimer + i, SlotState::kReady}.packed(),
                 std::memory_order_release);  // [slot]
    }
    // Relaxed: written by this claimer, or by one that is dead. Who is late reads there how far the
    // run goes.
    const std::uint32_t more =
        SlotWord::unpacked(word(place.block, place.slot).load(std::memory_order_relaxed)).more;
    word(place.block, place.slot)
        .store(SlotWord{place.sequence, claimer, SlotState::kReady, more}.packed(),
               std::memory_order_release);  // [slot]
  }

  SlotWord look(std::uint32_t block, std::uint32_t slot) const noexcept {
    return SlotWord::unpacked(word(block, slot).load(std::memory_order_acquire));  // [slot]
  }
  bool is_ready(const SlotPlace& place) const noexcept {
    const SlotWord word = look(place.block, place.slot);
    return word.sequence == place.sequence && word.state == SlotState::kReady;
  }

  /// Owner, while nobody claims: the next claim is the first of batch `sequence`.
  void restart(std::uint64_t sequence) noexcept {
    // Relaxed: as in open().
    cursor_->store(sequence * slots_, std::memory_order_relaxed);
  }

  std::uint32_t slots() const noexcept { return slots_; }

 private:
  Word64& word(std::uint32_t block, std::uint32_t slot) const noexcept {
    return words_[static_cast<std::size_t>(block) * slots_ + slot];
  }

  Word64* cursor_ = nullptr;
  std::span<Word> blocks_;
  std::span<Word64> words_;
  std::uint32_t slots_ = 1;
  std::uint32_t last_block_ = 0;
};

using ArrivalSlots = BasicArrivalSlots<SystemAtomics>;

}  // namespace shoal::sync
