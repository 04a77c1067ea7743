// Members go in and out without a lock; one that has to be alone closes the gate and waits until all
// are out: what a repair needs that must not meet a change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state, open and empty.
///
/// Threads, processes: each member is one thread at a time; one closes at a time, under a lock of the
/// user's.
/// Invariants: after close(), once is_inside() was false of every member, none is inside until open().
/// Memory ordering: what a member did inside is visible to who then sees it outside, and what was done
/// while the gate was closed to who enters afterwards ([gate]). Entering and closing are sequentially
/// consistent: each puts its own word before it looks at the other's, so one of them sees the other.
/// Death: of a member inside: it stays inside until leave() is called in its place. Of one that closed:
/// the gate stays closed; the lock's next holder goes on.
template <class Atomics, std::size_t kMembers>
class BasicGate {
 public:
  static constexpr std::size_t kMost = kMembers;

  /// False where the gate is closed.
  [[nodiscard]] bool try_enter(std::size_t member) {
    inside_[member].store(1, std::memory_order_seq_cst);
    if (closed_.load(std::memory_order_seq_cst) == 0) return true;  // [gate]
    leave(member);
    return false;
  }
  void leave(std::size_t member) { inside_[member].store(0, std::memory_order_release); }  // [gate]

  void close() { closed_.store(1, std::memory_order_seq_cst); }
  void open() { closed_.store(0, std::memory_order_release); }  // [gate]
  bool is_closed() const { return closed_.load(std::memory_order_acquire) != 0; }
  bool is_inside(std::size_t member) const {
    return inside_[member].load(std::memory_order_seq_cst) != 0;  // [gate]
  }

 private:
  typename Atomics::Word closed_;
  typename Atomics::Word inside_[kMembers];
};

template <std::size_t kMembers>
using Gate = BasicGate<SystemAtomics, kMembers>;

}  // namespace shoal::sync
