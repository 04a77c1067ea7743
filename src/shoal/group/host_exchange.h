// The ranks of one host, through memory that they share.
//
// The arena, with L ranks:
//
//   offset                     bytes                 what
//        0                     128·L                 a Doorbell each: sync::Lockstep
//    128·L                     L·2·(64 + kSlotBytes)  of each rank two slots, which alternate from piece to
//                                                    piece: a length (8 bytes), then data from byte 64 on
//
// An operation goes by pieces that fit into a slot: everybody writes its slot, arrives, waits for
// all, and reads the slots of the others. A sum of much data takes a second round: each rank adds
// its share of the elements into its own slot, and then all read the shares. With two slots nobody
// overwrites what another still reads (sync/lockstep_model_test.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/group/watch.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/lockstep.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::group {

/// A resource.
///
/// Threads: one at a time.
/// Processes: one rank each. All do the same operations in the same order, with the same sizes but
/// for gather().
/// Death: of another rank: its loss is thrown from the operation that waits for it.
/// Fork: refused while a group lives.
class HostExchange {
 public:
  static constexpr std::size_t kSlotBytes = 256 * 1024;
  static std::size_t arena_bytes(int ranks);

  /// Borrows the watch. `ranks`: those of this host; `index` is this one's among them.
  HostExchange(shm::Arena arena, std::vector<int> ranks, int index, Watch& watch);

  /// Each element becomes the sum of all ranks', in the order of add_parts(): the same bits
  /// everywhere.
  void sum(std::span<float> floats, std::span<double> doubles);
  /// Everybody gets what index 0 has.
  void broadcast(std::span<std::byte> bytes);
  /// At index 0 what each has, by index; elsewhere nothing.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);

 private:
  struct Slot {
    std::uint64_t length;
    char padding[56];
    std::byte data[kSlotBytes];
  };
  static_assert(sizeof(Slot) == 64 + kSlotBytes);

  Slot& slot(int index) const noexcept { return slots_[index * 2 + turn_]; }
  /// All have arrived.
  void step();
  void sum_piece(std::span<float> floats, std::span<double> doubles);
  /// Elements [from, to) of the arrays that begin at `offset` of the slots' data.
  template <class T>
  void add(std::size_t offset, std::size_t from, std::size_t to, T* out) const;
  /// What others added for this rank: their shares of `into`.
  template <class T>
  void take_shares(std::size_t offset, std::span<T> into) const;
  /// The part of so many elements that is `index`'s begins there.
  std::size_t share(std::size_t size, int index) const noexcept;

  shm::Arena arena_;
  const std::vector<int> here_;  // this host's
  const int ranks_;
  const int index_;
  Watch& watch_;
  Slot* slots_;
  sync::Lockstep steps_;
  sync::SpinPolicy policy_;
  int turn_ = 0;  // which of the two slots the piece under way is in
};

}  // namespace shoal::group
