// Messages from any process of the family to any other, first in, first out.
//
// A queue lies in a block of the heap, so it can be named in a message and goes with its last
// holder; what nobody took goes with it. Small messages lie in its ring, which grows as needed;
// larger ones, and those that name blocks, are blocks that the queue holds meanwhile.
//
// Threads, processes: any number may put and get.
// Memory ordering: what was written before a put is seen after the get of its message.
// Death: of a process on any line of a put or a get: at most its own message is lost, and no block
// is left behind. Waits are cut into slices, so a death keeps nobody asleep beside an item for
// longer than kSlice.
// Fork: parent and child use the same queue.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/queue/queue_layout.h"
#include "shoal/ipc/queue/queue_pollers.h"
#include "shoal/ipc/queue/record_ring.h"
#include "shoal/os/clock.h"

namespace shoal::ipc {

struct QueueOptions {
  std::uint32_t max_items = 0;  // 0: no limit
  std::uint64_t max_bytes = 0;  // of messages, without the blocks they name; one always fits
};

enum class [[nodiscard]] QueueOutcome : std::uint8_t {
  kDone,
  kTimedOut,     // empty, or full, until the deadline
  kInterrupted,  // a signal handler ran, or QueueWait::give_up returned true
  kClosed,       // the peer is gone, and nothing that it put is left
};

/// What get() returns: its bytes lie in here, or in a block of the heap. Use one for many gets.
/// Threads: one at a time.
class Message {
 public:
  static constexpr std::size_t kMaxInlineBytes = 4096;

  std::uint16_t tag() const noexcept { return tag_; }
  /// Valid until the next get() into this message.
  std::span<const std::byte> bytes() const noexcept {
    return {block_ ? block_.data() : inline_.data(), bytes_};
  }
  /// The block of a large message, or of one that names blocks; it holds the blocks that are named.
  Block& block() noexcept { return block_; }
  void clear() noexcept {
    block_ = Block();
    bytes_ = 0;
  }

 private:
  friend class Queue;
  std::uint16_t tag_ = 0;
  std::size_t bytes_ = 0;
  Block block_;
  std::array<std::byte, kMaxInlineBytes> inline_;
};

/// A block that a peer holds for as long as it is there, so that the block's end tells of the
/// peer's; a value.
struct Token {
  Offset block = 0;
  std::uint64_t serial = 0;

  bool operator==(const Token&) const = default;
  /// Whether anybody holds it. A process that died holds it until the next sweep().
  bool held(const Heap& heap) const noexcept;
};

/// How long to wait, and for whom.
struct QueueWait {
  os::Deadline deadline = os::kNoDeadline;
  const Token* peer = nullptr;  // kClosed once it is gone
  bool (*give_up)() =
      nullptr;  // asked after signals and every kSlice, without a lock; true: kInterrupted
};

/// This process's reference on a queue; a resource. Its contract is at the top of this file.
class Queue {
 public:
  /// How long a waiter sleeps at most before it looks around.
  static constexpr auto kSlice = std::chrono::milliseconds(100);

  /// Throws OutOfMemory.
  static Queue create(QueueOptions options = {});
  /// Throws Error for a block that is no queue.
  explicit Queue(Block block);
  Queue(Queue&&) noexcept = default;

  const Block& block() const noexcept { return block_; }
  QueueOptions options() const noexcept { return {words().max_items, words().max_bytes}; }

  /// Puts a copy of `bytes`; `blocks`, which this process holds, live until the message that names
  /// them goes. kClosed when the peer is gone. Throws OutOfMemory.
  QueueOutcome put(std::uint16_t tag, std::span<const std::byte> bytes,
                   std::span<const Offset> blocks, const QueueWait& how);

  /// Takes the oldest message. kClosed when there is none and the peer is gone. Throws Error where
  /// somebody has written over the queue.
  QueueOutcome get(Message& message, const QueueWait& how);

  /// Waits until get() would return at once.
  QueueOutcome poll(const QueueWait& how);

  /// As of some moment during the call.
  std::uint32_t size() const noexcept;

  /// How many tasks were put and are not done: with task_done() and join() what CPython's
  /// JoinableQueue has.
  std::uint32_t unfinished() const noexcept;
  /// False when all are done already.
  [[nodiscard]] bool task_done() noexcept;
  QueueOutcome join(const QueueWait& how);

  /// Wakes everybody who waits, to look whether the wait is over.
  void nudge() noexcept;

  /// A descriptor of this process that is readable while there are items, and after a nudge() until
  /// the next look. Throws SystemError; Error when too many processes have one.
  int fileno(const Token* peer = nullptr);

 private:
  class Lock;
  using Wake = sync::Sleepers::Wake;

  layout::QueueWords& words() const noexcept {
    return *reinterpret_cast<layout::QueueWords*>(block_.data());
  }
  Heap& heap() const noexcept { return *block_.heap(); }
  std::uint64_t place(const layout::QueueWords::Word& word) const noexcept {
    return block_.offset() +
           static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&word) - block_.data());
  }

  void recover() noexcept;
  RecordRing ring() const;
  std::uint32_t used_units(const RecordRing& records) const;
  void replace_ring(std::uint32_t log);
  void give_ring_back() noexcept;
  void discard_spare_ring();
  bool has_items() const noexcept;
  bool at_end(const Token* peer) noexcept;
  bool has_room(std::size_t bytes) const noexcept;
  void write_record(std::uint16_t tag, std::span<const std::byte> bytes, Block* message);
  void read_record(Message& message);

  template <class Ready, class Try>
  QueueOutcome wait(sync::Sleepers& sleepers, const QueueWait& how, Ready ready, Try attempt);
  template <class Act>
  QueueOutcome with_message(const QueueWait& how, Act act);

  Block block_;
  mutable std::uint64_t known_ring_ = 0;  // the word of a ring that was found to be this queue's
  mutable Token known_block_;             // which that ring is
  QueuePollers pollers_;
};

}  // namespace shoal::ipc
