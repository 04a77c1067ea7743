// How many messages each side of a worker's channel has taken, so that the other side knows how
// many more it may send: one cell for each worker of a zygote, in memory that parent, zygote and
// worker share.
//
//   offset  bytes  field
//        0    128  down: the worker rings for each message that it takes
//      128    128  up: the parent rings for each message that it takes
//
// The generation of a doorbell is the count: a sender without credit sleeps on it. When a cell is
// given to the next worker the counts go on; each side begins with what it finds.
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/os/socket/mailbox.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"

namespace shoal::process {

struct CreditCell {
  sync::Doorbell down;
  sync::Doorbell up;
};
static_assert(sizeof(CreditCell) == 256);

/// How many messages one side has sent, and how many it may have under way; a value.
/// Threads: one sender.
/// Processes: each side has its own; the count of what was taken is in the cell.
/// Death: of the other side: no more is taken, so it is used up after a window of messages.
class Credit {
 public:
  Credit() = default;
  /// At most `window` messages are under way at a time.
  Credit(const sync::Doorbell& taken, std::uint32_t window)
      : sent_(taken.generation()), window_(window) {}

  /// Whether one more may be sent, when `taken` is the count of the cell.
  bool is_there(std::uint32_t taken) const noexcept { return ((sent_ - taken) & kMask) < window_; }
  void spend() noexcept { sent_ = (sent_ + 1) & kMask; }

 private:
  static constexpr std::uint32_t kMask = 0x7fffffff;  // a doorbell counts in 31 bits
  std::uint32_t sent_ = 0;
  std::uint32_t window_ = 0;
};

/// How many messages to one worker may be under way. So few that those to all workers of one sender
/// fit into its buffer together.
inline constexpr std::uint32_t kDownWindow = os::MailboxSender::kMaxWaiting;

/// How many messages of one worker may wait in the parent until somebody takes them.
inline constexpr std::uint32_t kUpWindow = 64;

/// The cells of one zygote's workers; a resource.
///
/// Threads: any.
/// Processes: the parent makes it; the zygote attaches it, and its workers inherit it.
/// Death: of a worker: its cell is given to the next one as it is.
/// Fork: the child has the same cells.
class CreditCells {
 public:
  static constexpr int kCount = 256;

  CreditCells() noexcept = default;
  /// Throws SystemError when memory is short.
  static CreditCells create() {
    return CreditCells(shm::Arena::create("channels of workers", kCount * sizeof(CreditCell)));
  }
  /// Throws Error when the descriptor is something else.
  static CreditCells attach(os::Fd fd) {
    CreditCells cells(shm::Arena::attach(std::move(fd)));
    cells.arena_.close_fd();
    return cells;
  }

  CreditCell& at(int slot) const { return *arena_.at<CreditCell>(slot * sizeof(CreditCell)); }
  int fd() const noexcept { return arena_.fd(); }
  void close_fd() noexcept { arena_.close_fd(); }

 private:
  explicit CreditCells(shm::Arena arena) : arena_(std::move(arena)) {}

  shm::Arena arena_;
};

/// A bit in the tag of a message: the sender has closed its end. The other bits of a worker's tag
/// are the number of the request that started it; in the parent's tags they are zero.
inline constexpr std::uint64_t kClosedTag = std::uint64_t{1} << 63;

}  // namespace shoal::process
