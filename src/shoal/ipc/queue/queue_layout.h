// What lies where in the blocks of a queue.
//
// The queue's own block:
//
//   offset  bytes  field
//        0     64  magic, version, limits: written once
//       64     64  lock
//      128      8  put: items put, ever (mod 2^32) << 32 | position behind the last record
//      136      8  ring: offset of the ring's block, a multiple of 64 | log2 of its units
//      144      8  spare ring: a larger one that is being filled; 0 otherwise
//      152      8  bytes of the messages in the queue
//      160     24  who sleeps until there is an item, room, or no unfinished task
//      184      8  zero
//      192      8  take: items taken, ever (mod 2^32) << 32 | position of the oldest record
//      200      8  done: tasks done, ever (mod 2^32)
//      208     48  zero
//      256    384  pollers: processes that are told by a wake socket that there are items
//
// The ring is a block of 2^n units of 16 bytes that the queue's block holds. Positions count units,
// ever (mod 2^32). A record is contiguous and starts with
//
//        0      4  bytes of the message
//        4      2  kind: filler to the end of the ring, inline, block
//        6      2  tag, the users'
//        8      8  block: of the message, when it does not lie here; given to the queue's block
//       16      …  the message, when it lies here
//
// `put` and `take` are single words, so that a record comes and goes by one store, or by one
// transaction of the heap together with its block: there is nothing to repair after a death but the
// sum of bytes and a ring that was being replaced.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shoal/ipc/heap/heap_layout.h"
#include "shoal/os/socket/wake_socket.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/robust_lock.h"
#include "shoal/sync/sleepers.h"

namespace shoal::ipc::layout {

inline constexpr std::uint64_t kQueueMagic = 0x31455545514c4853;  // "SHLQUEUE1"
inline constexpr std::uint32_t kQueueVersion = 1;
inline constexpr std::uint32_t kUnit = 16;
inline constexpr std::uint32_t kSmallestRingLog = 8;  // 4 KiB
inline constexpr std::uint32_t kLargestRingLog = 30;
inline constexpr std::uint32_t kPassingRingLog = 18;  // 4 MiB; from here on given back when empty
inline constexpr std::size_t kMaxPollers = 16;

enum class RecordKind : std::uint16_t { kFiller = 1, kInline, kBlock };

struct RecordHeader {
  std::uint32_t bytes;
  RecordKind kind;
  std::uint16_t tag;
  Offset block;
};

struct Poller {
  std::uint64_t process;  // packed ProcessSlot; 0: free
  os::WakeName name;
};

/// How many, and where, in one word.
struct Cursor {
  std::uint32_t items = 0;
  std::uint32_t position = 0;

  static Cursor from(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  std::uint64_t word() const noexcept { return std::uint64_t{items} << 32 | position; }
};

struct QueueWords {
  using Word = sync::SystemAtomics::Word64;

  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t max_items;  // 0: no limit
  std::uint64_t max_bytes;  // 0: no limit
  std::uint64_t reserved[5];
  sync::RobustLock lock;
  Word put;
  Word ring;
  Word spare_ring;
  Word bytes;
  sync::Sleepers getters, putters, joiners;
  std::uint64_t reserved_too;
  Word take;
  Word done;
  std::uint64_t padding[6];
  std::array<Poller, kMaxPollers> pollers;
};
static_assert(sizeof(RecordHeader) == kUnit && std::is_standard_layout_v<QueueWords>);
static_assert(offsetof(QueueWords, lock) == 64 && offsetof(QueueWords, put) == 128 &&
              offsetof(QueueWords, getters) == 160 && offsetof(QueueWords, take) == 192 &&
              offsetof(QueueWords, pollers) == 256 && sizeof(QueueWords) == 640);

}  // namespace shoal::ipc::layout
