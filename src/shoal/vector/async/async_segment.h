// The shared segment of asynchronous environments: what is to be stepped, and where results go.
//
//   offset from the arena's base
//        0   AsyncHeader                         written once, before any worker sees it
//        …   cursor, order                       sync/arrival_slots.h
//        …   slot words  [blocks][batch_size], [num_envs]
//        …   gathers     [blocks + 1]            workers -> caller: a batch is complete
//        …   AsyncCell   [num_workers]
//        …   inboxes     [num_workers]           SpscIndices; then InboxEntry [capacity] of each
//        …   home rows   (page)                  vector/step/rows.h, num_envs rows, and their infos
//        …   blocks      (page) [blocks]         batch_size rows each, their env_ids and infos
//
// Environment i owns home row i for ever: it is stepped there. Its result is then copied, while it
// is in the worker's cache, to the place that it takes in a block; a block is what recv() hands
// out. A synchronous reset or step ends in the home rows themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/shm/arena.h"
#include "shoal/sync/arrival_slots.h"
#include "shoal/sync/gather.h"
#include "shoal/sync/spsc_indices.h"
#include "shoal/vector/step/rows.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

inline constexpr std::uint32_t kAsyncVersion = 3;

/// What is to be done with an environment.
enum class Order : std::uint16_t {
  kStep,   // with its home row's action
  kReset,  // an explicit reset, with its home row's seed
  kRenew,  // its environment is new: a reset in the place of a step
};

/// One environment's order; a value.
struct InboxEntry {
  static constexpr std::uint16_t kArrival = 0xffff;  // a block: takes the next place by itself

  std::uint32_t row;
  Order order;
  std::uint16_t block;     // the home block is the one behind the last
  std::uint32_t slot;      // where block is not kArrival
  std::uint32_t sequence;  // likewise
};
static_assert(sizeof(InboxEntry) == 16);

struct AsyncHeader {
  char magic[8];  // "SHOALASY"
  std::uint32_t version;
  std::uint32_t num_workers;
  std::uint32_t num_envs;
  std::uint32_t autoreset_mode;
  std::uint32_t batch_size;
  std::uint32_t num_blocks;
  std::uint32_t inbox_capacity;  // entries, of each worker's
  std::uint32_t reserved;
  std::uint64_t spaces;  // fingerprint() of both spaces: who attaches has the same layout
};
static_assert(sizeof(AsyncHeader) == 48);

/// One worker's words: all but hold_resets written by the worker, read by the caller for stats and
/// after a death.
struct alignas(128) AsyncCell {
  std::atomic<std::int32_t> env_now;  // EnvMarker's words
  std::atomic<std::uint64_t> env_since;
  std::atomic<std::uint64_t> steps;  // of single environments
  std::atomic<std::uint64_t> resets;
  std::atomic<std::uint64_t> busy_ns;
  std::atomic<std::uint64_t> parks;
  std::atomic<std::uint32_t> hold_resets;  // by the caller: Stepper::hold_resets()
};
static_assert(sizeof(AsyncCell) == 128);

/// The rows of one batch as one process sees them; a value that borrows the segment.
struct AsyncBlock {
  static constexpr std::size_t kInfoBytes = 512;               // room for the info of a row
  static constexpr std::uint32_t kInfoElsewhere = UINT32_MAX;  // it did not fit: the host brings it
  static constexpr std::uint8_t kFailed = 255;  // in rows.fault: the info is an error report

  Rows rows;
  std::span<std::int64_t> env_ids;
  std::span<std::uint32_t> info_sizes;
  std::span<std::byte> infos;
  std::byte* base = nullptr;  // of all the above
  sync::Gather* gather = nullptr;

  std::span<std::byte> info(std::size_t slot) const noexcept {
    return infos.subspan(slot * kInfoBytes, kInfoBytes);
  }

  /// Bytes from `base` on, a multiple of the page size.
  static std::size_t bytes(const Hello& spaces, int rows, AutoresetMode mode);
  /// Laid out from `base` on; without a gather.
  static AsyncBlock map(std::byte* base, const Hello& spaces, int rows, AutoresetMode mode);
};

/// Copies what the resets or steps of `count` neighbours wrote, from `row` on to `slot` on: all but
/// fault.
void copy_rows(const Rows& from, std::size_t row, const Rows& to, std::size_t slot,
               std::size_t count);

/// The segment as one process sees it; a value: copies share the mapping.
/// Threads: any; who may write what, the drawing and the structs say.
/// Processes: the caller makes it; each worker attaches it, and maps it at its own address.
/// Death: of a worker: its cell names the environment that it was in, and a place that it had
/// claimed and not filled names it (sync/arrival_slots.h), so the caller fills the place.
class AsyncSegment {
 public:
  struct Shape {
    int num_workers = 0;
    int num_envs = 0;
    int most_envs = 0;  // of one worker
    int batch_size = 0;
    int num_blocks = 0;
    AutoresetMode mode{};
  };

  AsyncSegment() = default;
  /// Throws SystemError when memory is short.
  static AsyncSegment create(const Hello& spaces, const Shape& shape);
  /// Throws Error when `arena` holds something else, another version, or rows of other spaces.
  static AsyncSegment attach(shm::Arena arena, const Hello& spaces);

  /// For who only looks on: a copy of the header where an arena with this `data` is one of ours, and
  /// the offset of the cells.
  static std::optional<AsyncHeader> header_in(std::span<const std::byte> data) noexcept;
  static std::size_t cells_at(const AsyncHeader& header) noexcept;

  int num_envs() const noexcept { return static_cast<int>(header_.num_envs); }
  int num_blocks() const noexcept { return static_cast<int>(header_.num_blocks); }
  std::uint32_t slots_per_block() const noexcept { return header_.batch_size; }
  AutoresetMode mode() const noexcept { return static_cast<AutoresetMode>(header_.autoreset_mode); }
  std::uint16_t home_block() const noexcept {
    return static_cast<std::uint16_t>(header_.num_blocks);
  }
  int batch_size() const noexcept { return static_cast<int>(header_.batch_size); }
  std::uint32_t inbox_capacity() const noexcept { return header_.inbox_capacity; }

  const Rows& home() const noexcept { return blocks_.back().rows; }
  const AsyncBlock& block(int block) const noexcept {
    return blocks_[static_cast<std::size_t>(block)];
  }
  std::size_t block_bytes() const noexcept { return block_bytes_; }

  /// Places of the blocks, and those of the home rows (one block of num_envs slots).
  sync::ArrivalSlots& slots() noexcept { return slots_; }
  sync::ArrivalSlots& home_slots() noexcept { return home_slots_; }

  AsyncCell& cell(int worker) const noexcept { return cells_[worker]; }
  sync::SpscIndices& inbox(int worker) const noexcept { return inboxes_[worker]; }
  /// The entry of index `index` in the inbox of `worker`.
  InboxEntry& entry(int worker, std::uint32_t index) const noexcept {
    return entries_[static_cast<std::size_t>(worker) * inbox_capacity() +
                    (index & (inbox_capacity() - 1))];
  }

  int fd() const noexcept { return arena_->fd(); }
  void close_fd() noexcept { arena_->close_fd(); }
  /// Keeps the memory.
  std::shared_ptr<const void> memory() const noexcept { return arena_; }

 private:
  AsyncSegment(shm::Arena arena, const AsyncHeader& header, const Hello& spaces);

  std::shared_ptr<shm::Arena> arena_;
  AsyncHeader header_{};  // a copy: what was checked stays so
  std::size_t block_bytes_ = 0;
  sync::ArrivalSlots slots_;
  sync::ArrivalSlots home_slots_;
  AsyncCell* cells_ = nullptr;
  sync::SpscIndices* inboxes_ = nullptr;
  InboxEntry* entries_ = nullptr;
  std::vector<AsyncBlock> blocks_;  // the home block is the last
};

}  // namespace shoal::vector
