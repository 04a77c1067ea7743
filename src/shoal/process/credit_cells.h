// How much of what parent and worker sent each other has been taken: one cell for each worker of a
// zygote, in memory that all three share.
//
//   offset  bytes  field
//        0    128  down: the worker rings for each message that it takes
//      128    128  up: the parent rings for each message that it takes
//
// A doorbell's generation is the count, so that who has run out of credit sleeps on it. Counts go
// on when a cell is given to the next worker: each side begins with what it finds.
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/os/mailbox.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"

namespace shoal::process {

struct CreditCell {
  sync::Doorbell down;
  sync::Doorbell up;
};
static_assert(sizeof(CreditCell) == 256);

/// A count of what was sent, and who takes it; a value.
/// Threads: one sender.
class Credit {
 public:
  Credit() = default;
  /// At most `window` messages are under way at a time.
  Credit(const sync::Doorbell& taken, std::uint32_t window)
      : sent_(taken.generation()), window_(window) {}

  /// What was taken when it was looked at, for wait().
  bool is_there(std::uint32_t taken) const noexcept { return ((sent_ - taken) & kMask) < window_; }
  void spend() noexcept { sent_ = (sent_ + 1) & kMask; }

 private:
  static constexpr std::uint32_t kMask = 0x7fffffff;  // a doorbell counts in 31 bits
  std::uint32_t sent_ = 0;
  std::uint32_t window_ = 0;
};

/// Messages that the parent may have under way to one worker, so that those to all workers of a
/// sender fit into its buffer together.
inline constexpr std::uint32_t kDownWindow = os::MailboxSender::kMaxWaiting;

/// Messages of one worker that the parent holds until somebody takes them.
inline constexpr std::uint32_t kUpWindow = 64;

/// The cells of one zygote's workers; a resource.
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

/// Set in the tag of a message upwards, whose other bits are the worker's request number, and alone
/// in the tag of one downwards: the sender has closed its end.
inline constexpr std::uint64_t kClosedTag = std::uint64_t{1} << 63;

}  // namespace shoal::process
