// The rows of one stream in a ring: one process appends them, any number read what is still there.
//
//   word 0      rows whose place was claimed: those before claimed() - rows() are gone
//   word 1      rows that are whole: readers take those before it
//   words 2 …   place r % rows() of row r: its front, then its back
//
// A row's front is known when it begins, its back when it ends, and then the next row's front, too: an
// observation that ends one transition and begins the next is stored once. So row head() has a front
// already, and of `rows` places rows - 1 hold whole rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// Of a ring; sizes in bytes, each part of a row begins on a word.
struct RingColumnShape {
  std::uint64_t rows = 0;  // 2 or more
  std::size_t front = 0;
  std::size_t back = 0;

  static constexpr std::size_t words_of(std::size_t bytes) noexcept {
    return (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  }
  constexpr std::size_t row_words() const noexcept { return words_of(front) + words_of(back); }
  constexpr std::size_t words_needed() const noexcept { return 2 + rows * row_words(); }
};

/// A view of words in shared memory, whose first state is all zero bytes; a value.
///
/// Threads, processes: one appends at a time, any number read. A reader registers nowhere.
/// Invariants: what was copied of row r is of one append if is_whole(r) says so afterwards.
/// Memory ordering: a row's words are released and acquired one by one ([row]): whoever sees one word
/// of a newer row also sees that its place was claimed. What the writer did before finish() is visible
/// to who sees the row in head() ([head]).
/// Death: of a reader, nothing; of the writer, on any line: the rows before head() stay, and row
/// head() keeps its front if it is not the first. The next writer goes on from there.
/// Fork: parent and child use the same words; only one of them appends.
template <class Atomics>
class BasicRingColumn {
 public:
  using Word = typename Atomics::Word64;

  /// Borrows shape.words_needed() words.
  BasicRingColumn(Word* words, const RingColumnShape& shape) noexcept
      : words_(words), shape_(shape) {}

  std::uint64_t rows() const noexcept { return shape_.rows; }

  /// Whether anybody ever began.
  bool begun() const { return claimed() > 0; }
  /// Whole rows so far; the next one's number.
  std::uint64_t head() const { return words_[1].load(std::memory_order_acquire); }  // [head]
  /// The first row that is still there.
  std::uint64_t oldest() const {
    const std::uint64_t all = claimed();
    return all > shape_.rows ? all - shape_.rows : 0;
  }

  /// Writer: the first row of all begins.
  void start(const std::byte* front) {
    words_[0].store(1, std::memory_order_relaxed);  // released by each word that follows
    put(front_of(0), front, shape_.front);
  }

  /// Writer: row head() ends, and the next one begins.
  void finish(const std::byte* back, const std::byte* next_front) {
    const std::uint64_t row = words_[1].load(std::memory_order_relaxed);  // ours alone
    words_[0].store(row + 2, std::memory_order_relaxed);  // released by each word that follows
    put(back_of(row), back, shape_.back);
    put(front_of(row + 1), next_front, shape_.front);
    words_[1].store(row + 1, std::memory_order_release);  // [head]
  }

  /// Reader: of a row before head(), or row head() itself where head() > 0.
  void copy_front(std::uint64_t row, std::byte* out) const {
    get(front_of(row), out, shape_.front);
  }
  /// Reader: of a row before head().
  void copy_back(std::uint64_t row, std::byte* out) const { get(back_of(row), out, shape_.back); }
  /// Reader: whether all that it has copied of this row and of later ones was theirs.
  bool is_whole(std::uint64_t row) const {
    return words_[0].load(std::memory_order_relaxed) <=  // ordered by the loads of the words
           row + shape_.rows;
  }

  /// Makes the ring one in which `head` rows were appended, of which none is there yet: those from
  /// oldest() on are put back by restore_row(). Nobody else uses it meanwhile.
  void restore(std::uint64_t head, bool begun) {
    words_[1].store(head, std::memory_order_relaxed);
    words_[0].store(begun ? head + 1 : 0, std::memory_order_relaxed);
  }
  /// `back` may be null: of row head().
  void restore_row(std::uint64_t row, const std::byte* front, const std::byte* back) {
    put(front_of(row), front, shape_.front);
    if (back != nullptr) put(back_of(row), back, shape_.back);
  }

 private:
  std::uint64_t claimed() const { return words_[0].load(std::memory_order_relaxed); }
  Word* front_of(std::uint64_t row) const noexcept {
    return words_ + 2 + row % shape_.rows * shape_.row_words();
  }
  Word* back_of(std::uint64_t row) const noexcept {
    return front_of(row) + RingColumnShape::words_of(shape_.front);
  }

  static void put(Word* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + i, std::min(sizeof word, bytes - i));
      to[i / sizeof word].store(word, std::memory_order_release);  // [row]
    }
  }
  static void get(const Word* from, std::byte* to, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
      const std::uint64_t word = from[i / sizeof word].load(std::memory_order_acquire);  // [row]
      std::memcpy(to + i, &word, std::min(sizeof word, bytes - i));
    }
  }

  Word* words_;
  RingColumnShape shape_;
};

using RingColumn = BasicRingColumn<SystemAtomics>;

}  // namespace shoal::sync
