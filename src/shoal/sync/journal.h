// Changes of several words that happen all or not at all, whoever dies while making them.
//
//     BasicTransaction change(journal, base);      // under the lock that guards the words
//     change.set(place, change.get(place) + 1);    // noted here, nothing has changed
//     change.commit();                             // journal, words, journal cleared
//
// Processes: journal and words lie in shared memory, all words 64 bits wide, named by their offset
// from `base`, which may differ from process to process. Both are used only under one robust lock.
// Death: who finds the lock's owner dead calls recover() before anything else: it finishes a change
// that was in the journal whole, and there is no trace of one that was not. Recovering may be cut
// short by a death, too.
// Memory ordering: the lock's. What counts here is the order in which one thread executes its
// stores, because it may die between any two; hence the fences for the compiler.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shoal/os/error.h"
#include "shoal/sync/atomics.h"

namespace shoal::sync {

struct WordChange {
  std::uint64_t place;  // bytes from the base, a multiple of 8
  std::uint64_t value;
};

template <class Atomics, std::size_t kMaxChanges>
class BasicJournal {
 public:
  using Word = typename Atomics::Word64;
  static constexpr std::size_t kCapacity = kMaxChanges;

  /// Makes the changes. A single one needs no journal.
  void apply(std::span<const WordChange> changes, std::byte* base) {
    if (changes.size() <= 1) {
      for (const WordChange& change : changes) word(base, change.place).store(change.value, kOrder);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return;
    }
    SHOAL_CHECK(changes.size() <= kMaxChanges, "a transaction larger than its journal");
    for (std::size_t i = 0; i < changes.size(); ++i) {
      places_[i].store(changes[i].place, kOrder);
      values_[i].store(changes[i].value, kOrder);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    count_.store(changes.size(), std::memory_order_release);
    replay(changes.size(), base);
  }

  /// Finishes the change that a dead process was making; whether there was one.
  bool recover(std::byte* base) {
    const std::uint64_t count = count_.load(std::memory_order_acquire);
    if (count == 0) return false;
    replay(count, base);
    return true;
  }

  static Word& word(std::byte* base, std::uint64_t place) {
    return *reinterpret_cast<Word*>(base + place);
  }

 private:
  static constexpr auto kOrder = std::memory_order_relaxed;  // only the lock's holder looks

  void replay(std::uint64_t count, std::byte* base) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    for (std::uint64_t i = 0; i < count; ++i) {
      word(base, places_[i].load(kOrder)).store(values_[i].load(kOrder), kOrder);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    count_.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  Word count_;  // changes that are being made; 0: none
  std::array<Word, kMaxChanges> places_;
  std::array<Word, kMaxChanges> values_;
};

/// Notes changes for a journal and makes them at once; reads see what was noted. A value of one
/// thread, valid while the lock is held. Without commit() nothing happens.
template <class Atomics, std::size_t kMaxChanges>
class BasicTransaction {
 public:
  using Journal = BasicJournal<Atomics, kMaxChanges>;

  BasicTransaction(Journal& journal, std::byte* base) noexcept : journal_(journal), base_(base) {}
  BasicTransaction(const BasicTransaction&) = delete;
  BasicTransaction& operator=(const BasicTransaction&) = delete;

  std::uint64_t get(std::uint64_t place) const {
    if ((seen_ & bit(place)) != 0) {
      if (const std::size_t at = find(place); at < count_) return changes_[at].value;
    }
    return Journal::word(base_, place).load(std::memory_order_relaxed);
  }

  void set(std::uint64_t place, std::uint64_t value) {
    if ((seen_ & bit(place)) != 0) {
      if (const std::size_t at = find(place); at < count_) {
        changes_[at].value = value;
        return;
      }
    }
    SHOAL_CHECK(count_ < kMaxChanges, "a transaction larger than its journal");
    seen_ |= bit(place);
    changes_[count_++] = {place, value};
  }

  void add(std::uint64_t place, std::uint64_t difference) { set(place, get(place) + difference); }

  void commit() {
    journal_.apply(std::span(changes_.data(), count_), base_);
    count_ = 0;
    seen_ = 0;
  }

  std::byte* base() const noexcept { return base_; }

 private:
  /// Most places that were never set are told apart from the others by one bit of 64.
  static std::uint64_t bit(std::uint64_t place) noexcept {
    return std::uint64_t{1} << ((place * 0x9e3779b97f4a7c15U) >> 58);
  }

  [[gnu::noinline]] std::size_t find(std::uint64_t place) const noexcept {
    std::size_t at = 0;
    while (at < count_ && changes_[at].place != place) ++at;
    return at;
  }

  Journal& journal_;
  std::byte* base_;
  std::uint64_t seen_ = 0;
  std::size_t count_ = 0;
  std::array<WordChange, kMaxChanges> changes_;
};

template <std::size_t kMaxChanges>
using Journal = BasicJournal<SystemAtomics, kMaxChanges>;
template <std::size_t kMaxChanges>
using Transaction = BasicTransaction<SystemAtomics, kMaxChanges>;

}  // namespace shoal::sync
