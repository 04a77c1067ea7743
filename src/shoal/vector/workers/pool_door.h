// The shared segment of one worker process of a pool: what wakes it.
//
//   offset from the arena's base
//        0   DoorHeader      written once, before the worker sees it
//      128   DoorWords       256 bytes
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"

namespace shoal::vector {

struct DoorHeader {
  char magic[8];  // "SHOALDOR"
  std::uint32_t num_workers;
  std::uint32_t cpus;  // that the parent may use: a pinned worker sees only its own
};
static_assert(sizeof(DoorHeader) == 16);

/// The bell says: look at your inboxes and at your mail.
///
/// Memory ordering: `mail` counts the messages that were sent to the worker, after each was sent
/// (release by the pool, acquire by the worker, [mail]); the ring that follows is the hint.
/// `serving` is a hint for who waits.
struct DoorWords {
  sync::Doorbell bell;
  alignas(128) std::atomic<std::uint64_t> mail;
  std::atomic<std::uint32_t> serving;  // the session whose code the worker runs; 0: none
};
static_assert(sizeof(DoorWords) == 256);

/// The segment as one process sees it; a resource.
/// Threads: any rings; the worker's own thread waits.
/// Processes: the pool makes it; its worker attaches it, and maps it at its own address.
/// Death: of the worker: its successor has a door of its own. Of the pool: the worker ends with it.
class PoolDoor {
 public:
  PoolDoor() = default;
  /// Of one of `num_workers` workers, whose parent may use `cpus`. Throws SystemError when memory
  /// is short.
  static PoolDoor create(int num_workers, int cpus) {
    PoolDoor door(shm::Arena::create("shoal pool door", kFirst + sizeof(DoorWords)));
    auto* header = door.arena_.at<DoorHeader>(0);
    std::memcpy(header->magic, kMagic, sizeof kMagic);
    header->num_workers = static_cast<std::uint32_t>(num_workers);
    header->cpus = static_cast<std::uint32_t>(cpus);
    return door;
  }
  /// Throws Error when `arena` holds something else.
  static PoolDoor attach(shm::Arena arena) {
    const bool known = arena.size() >= kFirst + sizeof(DoorWords) &&
                       std::memcmp(arena.at<DoorHeader>(0)->magic, kMagic, sizeof kMagic) == 0;
    if (!known) throw Error("attach to a worker pool: arena \"" + arena.name() + "\" is none");
    return PoolDoor(std::move(arena));
  }

  const DoorHeader& header() const noexcept { return *arena_.at<DoorHeader>(0); }
  DoorWords& words() const noexcept { return *arena_.at<DoorWords>(kFirst); }
  void ring() const noexcept { words().bell.ring(); }
  int fd() const noexcept { return arena_.fd(); }
  void close_fd() noexcept { arena_.close_fd(); }

 private:
  static constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'D', 'O', 'R'};
  static constexpr std::size_t kFirst = 128;

  explicit PoolDoor(shm::Arena arena) : arena_(std::move(arena)) {}

  shm::Arena arena_;
};

}  // namespace shoal::vector
