// What this process holds: for each block its one reference, and how often it is held here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::ipc {

struct Held {
  std::uint64_t block = 0;  // 0: an empty place of the table
  std::uint64_t ref = 0;
  std::uint64_t count = 0;
  std::uint64_t child_ref = 0;  // of the child that is being forked
};

/// A hash table with open addressing, by block, at most half full; a value.
/// Threads: one at a time.
/// Processes: this one's private memory.
/// Death: of this process: whoever sweeps its slot drops these references (ProcessSlots).
class HeldTable {
 public:
  HeldTable() : places_(64) {}

  Held* find(std::uint64_t block) noexcept {
    for (std::size_t at = home(block);; at = next(at)) {
      if (places_[at].block == block) return &places_[at];
      if (places_[at].block == 0) return nullptr;
    }
  }

  /// Makes room for one more: insert() cannot fail then.
  void reserve_one() {
    if (2 * (count_ + 1) <= places_.size()) [[likely]]
      return;
    std::vector<Held> old(2 * places_.size());
    old.swap(places_);
    for (const Held& held : old) {
      if (held.block != 0) put(held);
    }
  }

  /// A block that is not in the table yet, after reserve_one().
  void insert(std::uint64_t block, std::uint64_t ref) noexcept {
    put({.block = block, .ref = ref, .count = 1});
    ++count_;
  }

  /// Closes the gap, so that no look-up stops short.
  void erase(Held* held) noexcept {
    std::size_t gap = static_cast<std::size_t>(held - places_.data());
    for (std::size_t at = next(gap); places_[at].block != 0; at = next(at)) {
      const std::size_t wanted = home(places_[at].block);
      const bool stays = gap <= at ? gap < wanted && wanted <= at : gap < wanted || wanted <= at;
      if (stays) continue;
      places_[gap] = places_[at];
      gap = at;
    }
    places_[gap] = {};
    --count_;
  }

  std::size_t size() const noexcept { return count_; }

  /// All of `places_`, empty ones among them.
  std::vector<Held>& places() noexcept { return places_; }

 private:
  std::size_t home(std::uint64_t block) const noexcept {
    return static_cast<std::size_t>((block >> 6) * 0x9e3779b97f4a7c15U >> 32) &
           (places_.size() - 1);
  }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & (places_.size() - 1); }
  void put(const Held& held) noexcept {
    std::size_t at = home(held.block);
    while (places_[at].block != 0) at = next(at);
    places_[at] = held;
  }

  std::vector<Held> places_;
  std::size_t count_ = 0;
};

}  // namespace shoal::ipc
