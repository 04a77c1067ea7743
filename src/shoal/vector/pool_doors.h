// The shared segment of a worker pool: what wakes each worker.
//
//   offset from the arena's base
//        0   DoorsHeader                  written once, before any worker sees it
//      128   PoolDoor [num_workers]       256 bytes each
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "shoal/os/affinity.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"

namespace shoal::vector {

struct DoorsHeader {
  char magic[8];  // "SHOALPOO"
  std::uint32_t num_workers;
  std::uint32_t cpus;  // that the parent may use: a pinned worker sees only its own
};
static_assert(sizeof(DoorsHeader) == 16);

/// One worker's. The bell says: look at your inboxes and at your mail.
///
/// Memory ordering: `mail` counts the messages that were sent to the worker, after each was sent
/// (release by the pool, acquire by the worker, [mail]); the ring that follows is the hint.
/// `serving` is a hint for who waits.
struct PoolDoor {
  sync::Doorbell bell;
  alignas(128) std::atomic<std::uint64_t> mail;
  std::atomic<std::uint32_t> serving;  // the session whose code the worker runs; 0: none
};
static_assert(sizeof(PoolDoor) == 256);

/// The segment as one process sees it; a resource.
class PoolDoors {
 public:
  PoolDoors() = default;
  /// Throws SystemError when memory is short.
  static PoolDoors create(int num_workers) {
    PoolDoors doors(shm::Arena::create(
        "shoal worker pool", kFirst + sizeof(PoolDoor) * static_cast<std::size_t>(num_workers)));
    auto* header = doors.arena_.at<DoorsHeader>(0);
    std::memcpy(header->magic, kMagic, sizeof kMagic);
    header->num_workers = static_cast<std::uint32_t>(num_workers);
    header->cpus = static_cast<std::uint32_t>(os::allowed_cpus());
    return doors;
  }
  /// Throws Error when `arena` holds something else.
  static PoolDoors attach(shm::Arena arena) {
    const bool known = arena.size() >= kFirst &&
                       std::memcmp(arena.at<DoorsHeader>(0)->magic, kMagic, sizeof kMagic) == 0;
    if (!known) throw Error("attach to a worker pool: arena \"" + arena.name() + "\" is none");
    return PoolDoors(std::move(arena));
  }

  const DoorsHeader& header() const noexcept { return *arena_.at<DoorsHeader>(0); }
  PoolDoor& door(int worker) const noexcept {
    return arena_.at<PoolDoor>(kFirst, header().num_workers)[worker];
  }
  int fd() const noexcept { return arena_.fd(); }
  void close_fd() noexcept { arena_.close_fd(); }

 private:
  static constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'P', 'O', 'O'};
  static constexpr std::size_t kFirst = 128;

  explicit PoolDoors(shm::Arena arena) : arena_(std::move(arena)) {}

  shm::Arena arena_;
};

}  // namespace shoal::vector
