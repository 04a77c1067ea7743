// The blocks that a caller of recv() still has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "shoal/vector/async/async_vector_env.h"

namespace shoal::vector {

/// Threads: the caller's; a lease may be dropped by any.
/// Memory ordering: what the holder of a lease did with the block happens before its next use
/// (release when it is dropped, acquire when it is taken back, [lease]).
class AsyncVectorEnv::Leases : public std::enable_shared_from_this<Leases> {
 public:
  Leases(AsyncSegment segment, int blocks)
      : segment_(std::move(segment)), states_(static_cast<std::size_t>(blocks)) {}

  /// Blocks that were lent and not taken back.
  int lent() const noexcept { return lent_; }

  /// Lends a block itself.
  std::shared_ptr<const AsyncBlock> lend(int block) {
    states_[static_cast<std::size_t>(block)].store(kLent, std::memory_order_relaxed);  // relaxed:
    ++lent_;  // nobody else has it yet
    return {&segment_.block(block), [self = shared_from_this(), block](const AsyncBlock*) {
              self->states_[static_cast<std::size_t>(block)].store(
                  kReturned, std::memory_order_release);  // [lease]
            }};
  }

  /// Lends a copy of a block.
  std::shared_ptr<const AsyncBlock> copy(int block, const Hello& spaces) const {
    constexpr std::align_val_t kAlignment{128};
    const std::size_t bytes = segment_.block_bytes();
    auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    std::memcpy(memory, segment_.block(block).base, bytes);
    return {new AsyncBlock(AsyncBlock::map(memory, spaces, segment_.batch_size(), segment_.mode())),
            [](const AsyncBlock* copy) {
              ::operator delete(copy->base, kAlignment);
              delete copy;
            }};
  }

  /// Appends the blocks that have come back to `free`.
  void take_back(std::vector<int>& free) {
    if (lent_ == 0) return;
    for (std::size_t block = 0; block < states_.size(); ++block) {
      if (states_[block].load(std::memory_order_acquire) != kReturned) continue;  // [lease]
      states_[block].store(kHere, std::memory_order_relaxed);  // relaxed: the caller's alone again
      free.push_back(static_cast<int>(block));
      --lent_;
    }
  }

 private:
  static constexpr int kHere = 0;
  static constexpr int kLent = 1;
  static constexpr int kReturned = 2;

  AsyncSegment segment_;  // its memory outlives the VectorEnv
  std::vector<std::atomic<int>> states_;
  int lent_ = 0;
};

}  // namespace shoal::vector
