// Weights of many places, and which place a number below their sum falls on: what prioritised sampling
// draws from. Fixed point, so that sums are exact and do not depend on the order of changes.
//
//   word 0                 the greatest weight that was ever raised to
//   words 1 … leaves - 1   sums: node n is that of nodes 2 n and 2 n + 1, as signed numbers
//   words leaves …         a leaf each: a tag (bits above kValueBits), and its weight
//   words 2 leaves …       how many leaves have a weight in [(32 + f) 2^e / 32, (33 + f) 2^e / 32)
//
// A tag says whose weight it is: a place that was given to another row has another tag, and a change
// that comes late for the row before does not find it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// A view of words in shared memory, whose first state is all zero bytes; a value.
///
/// Threads, processes: any may do anything, but for rebuild(), during which nobody changes weights.
/// Nobody waits for anybody.
/// Invariants: when no change is under way, every node is the sum of its leaves. While some are, a node
/// may differ by what they change, so a caller of find() looks at the leaf that it is given.
/// Memory ordering: relaxed; nothing is read on the strength of a weight.
/// Death: of one that changes a weight: the leaf has the old weight or the new one, and sums above it
/// may be off by the difference for ever, or until rebuild().
template <class Atomics, int kValueBits = 44, int kFractionBits = 5>
class BasicSumTree {
 public:
  using Word = typename Atomics::Word64;

  static constexpr std::uint64_t kMaxValue = (std::uint64_t{1} << kValueBits) - 1;
  static constexpr std::uint64_t kTags = std::uint64_t{1} << (64 - kValueBits);
  static constexpr std::size_t kBuckets = std::size_t{kValueBits} << kFractionBits;

  struct Leaf {
    std::uint64_t tag = 0;
    std::uint64_t value = 0;
  };

  /// Leaves that `places` take: a power of two.
  static constexpr std::size_t leaves_for(std::size_t places) noexcept {
    return std::bit_ceil(std::max<std::size_t>(places, 2));
  }
  static constexpr std::size_t words_needed(std::size_t leaves) noexcept {
    return 2 * leaves + kBuckets;
  }

  /// Borrows words_needed(leaves) words; `leaves` is a power of two, 2 or more.
  BasicSumTree(Word* words, std::size_t leaves) noexcept : words_(words), leaves_(leaves) {}

  /// The greatest weight of a leaf such that no sum overflows.
  std::uint64_t limit() const noexcept {
    return std::min(kMaxValue, (std::uint64_t{1} << 62) / leaves_);
  }

  Leaf leaf(std::size_t place) const { return unpack(words_[leaves_ + place].load(kRelaxed)); }

  /// Gives the place this tag and weight, whatever they were. `value` is at most limit().
  void assign(std::size_t place, std::uint64_t tag, std::uint64_t value) {
    const std::uint64_t old = words_[leaves_ + place].exchange(pack(tag, value), kRelaxed);
    add(place, unpack(old).value, value);
  }

  /// Gives the place this weight if it has this tag (still). Whether it has.
  bool update(std::size_t place, std::uint64_t tag, std::uint64_t value) {
    Word& word = words_[leaves_ + place];
    std::uint64_t old = word.load(kRelaxed);
    do {
      if (unpack(old).tag != tag % kTags) return false;
    } while (!word.compare_exchange_weak(old, pack(tag, value), kRelaxed, kRelaxed));
    add(place, unpack(old).value, value);
    return true;
  }

  std::uint64_t total() const { return sum(1); }

  /// The place on which `target`, below total(), falls: the first whose weight and those before it
  /// sum to more. While changes are under way its weight may be 0.
  std::size_t find(std::uint64_t target) const {
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (const std::uint64_t left = sum(node); target >= left) {
        target -= left;
        ++node;
      }
    }
    return node - leaves_;
  }

  /// A weight that none but 0 is below, and the least of the others at most a 32nd above
  /// (2^-kFractionBits); 0: there is none.
  std::uint64_t least() const {
    for (std::size_t k = 0; k < kBuckets; ++k)
      if (static_cast<std::int64_t>(bucket(k).load(kRelaxed)) > 0) return from_bucket(k);
    return 0;
  }

  /// The greatest that raise() was told; 0: nothing.
  std::uint64_t greatest() const { return words_[0].load(kRelaxed); }
  void raise(std::uint64_t value) {
    std::uint64_t old = words_[0].load(kRelaxed);
    while (old < value && !words_[0].compare_exchange_weak(old, value, kRelaxed, kRelaxed)) {
    }
  }

  /// Nobody raises it meanwhile.
  void restore_greatest(std::uint64_t value) { words_[0].store(value, kRelaxed); }

  /// Makes the sums those of the leaves.
  void rebuild() {
    for (std::size_t node = leaves_ - 1; node > 0; --node)
      words_[node].store(sum(2 * node) + sum(2 * node + 1), kRelaxed);
    for (std::size_t k = 0; k < kBuckets; ++k) bucket(k).store(0, kRelaxed);
    for (std::size_t place = 0; place < leaves_; ++place) count(leaf(place).value, 1);
  }

  /// Whether they are. Nobody changes weights meanwhile.
  bool is_consistent() const {
    for (std::size_t node = 1; node < leaves_; ++node)
      if (words_[node].load(kRelaxed) != sum(2 * node) + sum(2 * node + 1)) return false;
    std::uint64_t counted = 0;
    std::uint64_t found = 0;
    for (std::size_t k = 0; k < kBuckets; ++k) counted += bucket(k).load(kRelaxed);
    for (std::size_t place = 0; place < leaves_; ++place) found += leaf(place).value != 0 ? 1 : 0;
    return counted == found;
  }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  static std::uint64_t pack(std::uint64_t tag, std::uint64_t value) noexcept {
    return tag << kValueBits | value;
  }
  static Leaf unpack(std::uint64_t word) noexcept { return {word >> kValueBits, word & kMaxValue}; }

  Word& bucket(std::size_t k) const { return words_[2 * leaves_ + k]; }

  /// Of an inner node or a leaf; never less than 0, which one may be for a moment.
  std::uint64_t sum(std::size_t node) const {
    const std::uint64_t word = words_[node].load(kRelaxed);
    if (node >= leaves_) return unpack(word).value;
    return static_cast<std::int64_t>(word) < 0 ? 0 : word;
  }

  void add(std::size_t place, std::uint64_t old, std::uint64_t value) {
    if (old == value) return;
    for (std::size_t node = (leaves_ + place) / 2; node > 0; node /= 2)
      words_[node].fetch_add(value - old, kRelaxed);  // modulo 2^64
    count(old, -1);
    count(value, 1);
  }

  void count(std::uint64_t value, int by) {
    if (value != 0)
      bucket(bucket_of(value)).fetch_add(static_cast<std::uint64_t>(std::int64_t{by}), kRelaxed);
  }

  static std::size_t bucket_of(std::uint64_t value) noexcept {
    const int exponent = std::bit_width(value) - 1;
    const std::uint64_t scaled = exponent >= kFractionBits ? value >> (exponent - kFractionBits)
                                                           : value << (kFractionBits - exponent);
    return (static_cast<std::size_t>(exponent) << kFractionBits) +
           (scaled & ((std::uint64_t{1} << kFractionBits) - 1));
  }

  /// The least weight of the bucket.
  static std::uint64_t from_bucket(std::size_t k) noexcept {
    const std::size_t exponent = k >> kFractionBits;
    const std::uint64_t scaled =
        (std::uint64_t{1} << kFractionBits) + (k & ((std::size_t{1} << kFractionBits) - 1));
    const std::uint64_t below = (std::uint64_t{1} << kFractionBits) - 1;  // rounds up
    return ((scaled << exponent) + below) >> kFractionBits;
  }

  Word* words_;
  std::size_t leaves_;
};

using SumTree = BasicSumTree<SystemAtomics>;

}  // namespace shoal::sync
