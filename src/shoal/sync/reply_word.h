// The state of one request and its reply, which the two sides share.
//
//   bits 31..3 the generation, bits 2..0 a ReplyState
//
//            queue()        begin()          finish()        release()
//   kFree ──────────▶ kQueued ──────▶ kRunning ──────▶ kDone ─────────▶ kFree
//     ▲   abandon()      │               │ abandon()
//     └──────────────────┘               ▼        finish()
//                                    kAbandoned ──────────▶ kFree
//
// The asker queues, abandons and releases; the answerer begins and finishes. Each use has a
// generation of its own, so an answerer that comes late with an old one changes nothing.
#pragma once

#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

enum class ReplyState : std::uint32_t { kFree, kQueued, kRunning, kAbandoned, kDone };

/// Lives in shared memory; all zero bytes is its first state: free, generation 0.
///
/// Threads, processes: one asker, one answerer.
/// Memory ordering: what was written before queue() is visible after begin(), what was written
/// before finish() after state() said kDone ([reply]).
/// Death: of the asker: the answerer may forget the word. Of the answerer: the word never changes
/// again, so the asker waits in slices and looks for its death.
/// Fork: parent and child use the same word.
/// Limit: exactly 2^29 uses later, a late answerer mistakes one use for another.
template <class Atomics>
class BasicReplyWord {
 public:
  /// Asker, while it is free: a new use; returns its generation.
  std::uint32_t queue() noexcept {
    const std::uint32_t generation =
        ((word_.load(std::memory_order_relaxed) >> kShift) + 1) & kMask;  // relaxed: the asker's
    word_.store(packed(generation, ReplyState::kQueued), std::memory_order_release);  // [reply]
    return generation;
  }

  ReplyState state() const noexcept {
    return static_cast<ReplyState>(word_.load(std::memory_order_acquire) & kStateMask);  // [reply]
  }

  /// Answerer: false when the asker does not want it any more.
  bool begin(std::uint32_t generation) noexcept {
    return move(generation, ReplyState::kQueued, ReplyState::kRunning);
  }

  /// Answerer, after begin(): false when the asker has gone on without it.
  bool finish(std::uint32_t generation) noexcept {
    if (move(generation, ReplyState::kRunning, ReplyState::kDone)) return true;
    move(generation, ReplyState::kAbandoned, ReplyState::kFree);
    return false;
  }

  /// Asker: the reply is not wanted. Returns whether the word is free now; else it will be once the
  /// answerer has finished.
  bool abandon(std::uint32_t generation) noexcept {
    if (move(generation, ReplyState::kQueued, ReplyState::kFree)) return true;
    if (move(generation, ReplyState::kRunning, ReplyState::kAbandoned)) return false;
    return move(generation, ReplyState::kDone, ReplyState::kFree);
  }

  /// Asker, when it is done: the reply has been read.
  void release(std::uint32_t generation) noexcept {
    word_.store(packed(generation, ReplyState::kFree), std::memory_order_release);  // [reply]
  }

 private:
  static constexpr std::uint32_t kShift = 3;
  static constexpr std::uint32_t kStateMask = 7;
  static constexpr std::uint32_t kMask = 0x1fffffff;

  static constexpr std::uint32_t packed(std::uint32_t generation, ReplyState state) noexcept {
    return generation << kShift | static_cast<std::uint32_t>(state);
  }

  bool move(std::uint32_t generation, ReplyState from, ReplyState to) noexcept {
    std::uint32_t word = packed(generation, from);
    return word_.compare_exchange_strong(word, packed(generation, to),
                                         std::memory_order_acq_rel,  // [reply]
                                         std::memory_order_relaxed);
  }

  typename Atomics::Word word_;
};

using ReplyWord = BasicReplyWord<SystemAtomics>;
static_assert(sizeof(ReplyWord) == 4);

}  // namespace shoal::sync
