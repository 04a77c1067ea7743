// Floats that several processes write at once, without locks: what Hogwild learners share.
//
// Two floats lie in a 64-bit word, which is loaded and stored in one piece: half the instructions of
// one float at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// A view of words in shared memory; all zero bytes is all zeros.
///
/// Threads, processes: any may do anything.
/// Invariants: every float that is loaded was stored, by somebody, as a whole. Nothing holds of two of
/// them: a load may give some from before another's store and some from after it, and of two that
/// load, compute and store, one's result may be lost.
/// Memory ordering: relaxed; nothing is read on the strength of them.
/// Death: on any line; some of the floats of a store are there then, the others are as before.
class RelaxedFloats {
 public:
  using Word = SystemAtomics::Word64;
  static constexpr std::size_t kInWord = sizeof(std::uint64_t) / sizeof(float);

  RelaxedFloats() = default;
  explicit RelaxedFloats(std::span<Word> words) noexcept : words_(words) {}

  std::size_t size() const noexcept { return words_.size() * kInWord; }

  /// Copies the floats from `first` on. `first` and the size are even.
  void load(std::size_t first, std::span<float> out) const noexcept {
    const Word* from = words_.data() + first / kInWord;
    for (std::size_t i = 0; i < out.size() / kInWord; ++i) {
      const std::uint64_t word = from[i].load(std::memory_order_relaxed);
      std::memcpy(out.data() + i * kInWord, &word, sizeof word);
    }
  }

  void store(std::size_t first, std::span<const float> in) noexcept {
    Word* to = words_.data() + first / kInWord;
    for (std::size_t i = 0; i < in.size() / kInWord; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, in.data() + i * kInWord, sizeof word);
      to[i].store(word, std::memory_order_relaxed);
    }
  }

 private:
  std::span<Word> words_;
};

}  // namespace shoal::sync
