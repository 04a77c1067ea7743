// The positions of a ring's one producer and one consumer; the entries are the user's.
//
//   offset  bytes  field
//        0      4  written: how many entries were published, ever; the producer's line
//        4    124  padding
//      128      4  read: how many were consumed, ever; the consumer's line
//      132    124  padding
#pragma once

#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state: empty. Entry i of the ring lies at
/// i % capacity, where the capacity is a power of two that both sides know.
///
/// Threads, processes: one producer, one consumer; the role may pass on with a happens-before.
/// Invariants: writable() and readable() never promise more than there is.
/// Memory ordering: an entry written before publish() is visible after the readable() that counts
/// it ([written]); one that was read before consume() may be overwritten after the writable() that
/// counts it ([read]).
/// Death: a consumer that dies has consumed a prefix; a successor goes on behind it, or the
/// producer calls reset() once nobody consumes.
/// Fork: parent and child use the same object. Nobody waits here: a doorbell (doorbell.h) says when
/// to look.
template <class Atomics>
class BasicSpscIndices {
 public:
  /// Producer: how many entries may be written from write_index() on.
  std::uint32_t writable(std::uint32_t capacity) const noexcept {
    return capacity - (written_.load(std::memory_order_relaxed) -  // relaxed: its own
                       read_.load(std::memory_order_acquire));     // [read]
  }
  std::uint32_t write_index() const noexcept {
    return written_.load(std::memory_order_relaxed);  // relaxed: the producer's own
  }
  void publish(std::uint32_t count) noexcept {
    written_.store(write_index() + count, std::memory_order_release);  // [written]
  }

  /// Consumer: how many entries may be read from read_index() on.
  std::uint32_t readable() const noexcept {
    return written_.load(std::memory_order_acquire) - read_index();  // [written]
  }
  std::uint32_t read_index() const noexcept {
    return read_.load(std::memory_order_relaxed);  // relaxed: the consumer's own
  }
  void consume(std::uint32_t count) noexcept {
    read_.store(read_index() + count, std::memory_order_release);  // [read]
  }

  /// Producer, while there is no consumer: forgets what was not consumed.
  void reset() noexcept { read_.store(write_index(), std::memory_order_release); }

 private:
  alignas(128) typename Atomics::Word written_;
  alignas(128) typename Atomics::Word read_;
};

using SpscIndices = BasicSpscIndices<SystemAtomics>;
static_assert(sizeof(SpscIndices) == 256 && alignof(SpscIndices) == 128);

}  // namespace shoal::sync
