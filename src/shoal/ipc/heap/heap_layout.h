// What lies where in the memory of a heap.
//
//   offset            what
//        0            HeapHeader: magic, geometry, lock, journal, HeapWords
//   slots_at          ProcessWords × slots: who is in the family, and the references each holds
//   refs_at           RefWords × refs: one for each (holder, block), in the list of its holder
//   runs_at           RunWords × pages: for the first and the last page of each run of pages
//   data_at           pages × 4096 bytes, tiled by runs up to HeapWords::top
//
// A run is free (clean: without memory; dirty: with its memory still there), pending (somebody is
// getting memory for it, or giving it back), one large block, or a slab of small blocks of one
// class. A block is a BlockWords and the user's bytes behind it, 64-byte aligned:
//
//   large run   BlockWords │ bytes …
//   slab run    SlabWords │ BlockWords │ bytes … │ BlockWords │ bytes … │ …
//
// All of it is 64-bit words. They change in transactions under the lock; what no list leads to yet
// is written without one. A "place" is an offset from the start; 0 is none.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shoal/sync/journal.h"
#include "shoal/sync/robust_lock.h"

namespace shoal::ipc {

using Offset = std::uint64_t;

namespace layout {

inline constexpr std::uint64_t kMagic = 0x31504145484c4853;  // "SHLHEAP1"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kPopulateStep = 64 * 1024;  // of the tables before the data
inline constexpr std::size_t kMaxChanges = 96;

using Journal = sync::Journal<kMaxChanges>;
using Transaction = sync::Transaction<kMaxChanges>;

// Small blocks: sizes with their BlockWords, 4 to a doubling, all multiples of 64.
inline constexpr std::uint64_t kSmallestBlock = 128;
inline constexpr std::uint64_t kLargestSmall = 32 * 1024;
inline constexpr auto kClassBytes = [] {
  std::array<std::uint64_t, 31> sizes{};
  std::size_t count = 0;
  for (std::uint64_t size = kSmallestBlock; size < 512; size += 64) sizes[count++] = size;
  for (std::uint64_t base = 512; base < kLargestSmall; base *= 2) {
    for (std::uint64_t quarter = 0; quarter < 4; ++quarter) {
      sizes[count++] = base + quarter * base / 4;
    }
  }
  sizes[count++] = kLargestSmall;
  return sizes;
}();
inline constexpr std::size_t kClasses = kClassBytes.size();
static_assert(kClassBytes[kClasses - 1] == kLargestSmall);

constexpr std::size_t class_of(std::uint64_t bytes) noexcept {
  if (bytes <= 512) return bytes <= kSmallestBlock ? 0 : (bytes - kSmallestBlock + 63) / 64;
  const std::uint64_t base = std::bit_floor(bytes - 1);
  return 6 + 4 * static_cast<std::size_t>(std::countr_zero(base) - 9) +
         (bytes - base + base / 4 - 1) / (base / 4);
}
static_assert(class_of(512) == 6 && class_of(513) == 7 && class_of(640) == 7 &&
              class_of(641) == 8 && class_of(kLargestSmall) == kClasses - 1);

constexpr std::uint64_t slab_pages(std::size_t block_class) noexcept {
  return kClassBytes[block_class] <= 4096 ? 16 : 64;
}

// Free runs are listed by length: one list for each below 64 pages, 8 to a doubling above.
inline constexpr std::size_t kExactBins = 64;
inline constexpr std::size_t kBins = 320;
constexpr std::size_t bin_of(std::uint64_t pages) noexcept {
  if (pages < kExactBins) return pages;
  const auto log = static_cast<std::size_t>(std::bit_width(pages) - 1);
  return kExactBins + (log - 6) * 8 + ((pages >> (log - 3)) & 7);
}
static_assert(bin_of(64) == 64 && bin_of((std::uint64_t{1} << 32) - 1) < kBins);

enum class RunState : std::uint64_t { kNone, kClean, kDirty, kPending, kBlock, kSlab };

/// Of the first and the last page of a run.
struct RunWords {
  std::uint64_t tag;    // state | pages << 8
  std::uint64_t links;  // free runs, first page: next | previous << 32 in the list, as page + 1
};

struct SlabWords {
  std::uint64_t block_class;
  std::uint64_t used;    // blocks that are in use
  std::uint64_t carved;  // blocks that have ever been
  std::uint64_t free;    // list of blocks, by BlockWords::link
  std::uint64_t next;    // in the list of slabs with room
  std::uint64_t previous;
  std::uint64_t first_page;
  std::uint64_t spare;
};

enum class BlockState : std::uint64_t { kFree, kLive, kDying };
inline constexpr std::uint64_t kBlockMagic = 0x424c4b53;  // "SKLB"

struct BlockWords {
  std::uint64_t tag;     // kBlockMagic << 32 | kind << 8 | state
  std::uint64_t bytes;   // that the user asked for
  std::uint64_t serial;  // of its allocation, never used again
  std::uint64_t refs;    // references on it
  std::uint64_t held;    // list of the references that it holds itself
  std::uint64_t given;   // the reference by which give() left it to a holder; 0: none
  std::uint64_t home;    // its slab; or first page << 1 | 1
  std::uint64_t link;    // next free block of the slab; next dying block
};

struct RefWords {
  std::uint64_t block;   // 0: free
  std::uint64_t holder;  // place of the ProcessWords | 1, or of the BlockWords
  std::uint64_t next;    // in the holder's list, or of free references
  std::uint64_t previous;
};

enum class SlotState : std::uint64_t { kFree, kAlive, kUnborn, kDead };

struct ProcessWords {
  std::uint64_t tag;         // epoch << 32 | state
  std::uint64_t pid;         // of an unborn one: its parent's
  std::uint64_t start_time;  // likewise
  std::uint64_t held;        // list of its references
  std::uint64_t pending;     // page + 1 of the run that it is getting or giving back
  std::uint64_t image;
  std::uint64_t spare[2];
};

/// What changes all the time.
struct HeapWords {
  std::uint64_t serial;
  std::uint64_t top;         // pages in use from data_at on
  std::uint64_t runs_ready;  // pages whose RunWords have memory
  std::uint64_t refs_made;
  std::uint64_t refs_ready;  // that have memory
  std::uint64_t free_ref;
  std::uint64_t slots_made;
  std::uint64_t dying;  // list of blocks that still hold references
  std::uint64_t live_blocks;
  std::uint64_t live_bytes;  // as users asked for them
  std::uint64_t live_refs;
  std::uint64_t free_pages[2];  // clean, dirty
  std::uint64_t bin_bits[2][kBins / 64];
  std::uint64_t bins[2][kBins];   // first page + 1
  std::uint64_t slabs[kClasses];  // with room
};

struct HeapHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t id;  // random
  std::uint64_t bytes;
  std::uint64_t slots_at, slots;
  std::uint64_t refs_at, refs;
  std::uint64_t runs_at, pages;
  std::uint64_t data_at;
  std::uint64_t spare[5];
  sync::RobustLock lock;
  Journal journal;
  HeapWords words;
};
static_assert(sizeof(RunWords) == 16 && sizeof(SlabWords) == 64 && sizeof(BlockWords) == 64 &&
              sizeof(RefWords) == 32 && sizeof(ProcessWords) == 64);
static_assert(std::is_standard_layout_v<HeapHeader> && offsetof(HeapHeader, lock) == 128);

constexpr std::uint64_t kWords = offsetof(HeapHeader, words);

/// Places of HeapWords.
#define SHOAL_HEAP_WORD(member) (::shoal::ipc::layout::kWords + offsetof(HeapWords, member))

constexpr std::uint64_t block_tag(std::uint64_t kind, BlockState state) noexcept {
  return kBlockMagic << 32 | kind << 8 | static_cast<std::uint64_t>(state);
}
constexpr BlockState state_of_tag(std::uint64_t tag) noexcept {
  return static_cast<BlockState>(tag & 0xff);
}
constexpr std::uint64_t kind_of_tag(std::uint64_t tag) noexcept { return tag >> 8 & 0xff; }

}  // namespace layout
}  // namespace shoal::ipc
