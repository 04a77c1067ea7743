// The weights of a policy in shared memory: a learner publishes them, collectors in other processes
// read them whole.
//
// The bytes of its arena:
//
//   offset  bytes  field
//        0      8  magic      "SHOALWTS"
//        8      4  version    kWeightStoreVersion
//       12      4  slots
//       16      8  bytes      of one set of weights
//       24    104  zero
//      128      …  sync::VersionedSlots
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "shoal/os/fd.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/versioned_slots.h"

namespace shoal::collect {

inline constexpr std::uint32_t kWeightStoreVersion = 1;

struct WeightStoreHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t slots;
  std::uint64_t bytes;
};
static_assert(sizeof(WeightStoreHeader) == 24 && std::is_trivially_copyable_v<WeightStoreHeader>);

/// A set of weights of fixed size, by version; a resource. What its bytes mean, its users agree on.
///
/// Threads, processes: one publishes at a time, any number read; nobody waits for anybody.
/// Invariants: read() gives exactly the bytes of one publish(), the newest when it began or a later
/// one.
/// Death: of a reader, nothing; of the publisher, on any line: the version before stays.
/// Fork: the child shares the memory.
class WeightStore {
 public:
  static constexpr std::uint32_t kDefaultSlots = 3;

  /// Throws InvalidArgument for 0 bytes or fewer than 2 slots, SystemError when memory is short.
  static WeightStore create(std::size_t bytes, std::uint32_t slots = kDefaultSlots);

  /// Maps the store of another process. Throws Error when the descriptor is none of one.
  static WeightStore attach(os::Fd fd);

  /// Of one set of weights.
  std::size_t bytes() const noexcept { return slots_.bytes(); }
  /// To send to another process.
  int fd() const noexcept { return arena_.fd(); }

  /// The newest; 0: none was published yet.
  std::uint64_t version() const noexcept { return slots_.version(); }
  /// Makes these the newest weights and returns their version, counted from 1. Throws
  /// InvalidArgument for another size than bytes().
  std::uint64_t publish(std::span<const std::byte> weights);
  /// Copies the newest weights and returns their version; 0 and no change where there are none.
  /// Throws InvalidArgument for another size than bytes().
  std::uint64_t read(std::span<std::byte> weights) const;

 private:
  explicit WeightStore(shm::Arena arena);
  void require_size(std::size_t bytes, const char* what) const;

  shm::Arena arena_;
  sync::VersionedSlots slots_;
};

}  // namespace shoal::collect
