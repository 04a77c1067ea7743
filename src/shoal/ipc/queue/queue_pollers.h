// The processes that poll a queue by a descriptor, and how they are told that there are items.
#pragma once

#include <sys/types.h>

#include <span>

#include "shoal/ipc/heap/heap.h"
#include "shoal/ipc/queue/queue_layout.h"
#include "shoal/os/socket/wake_socket.h"

namespace shoal::ipc {

/// This process's part; a resource. Sockets are made on demand: one in a process that polls, one in
/// a process that puts while another one polls.
///
/// Threads, processes: one at a time, under the queue's lock.
/// Death: of a process that polls, or of its handle: whoever wakes it next, or needs its entry,
/// removes it from the table.
/// Fork: a child begins without a socket.
class QueuePollers {
 public:
  using Table = std::span<layout::Poller>;

  static bool any(Table table) noexcept;

  /// Wakes all that are in the table, and removes those that are gone.
  void wake(Table table) noexcept;

  /// This process's descriptor; it enters itself. Throws SystemError; Error when the table is full.
  int enter(Table table, Heap& heap);
  bool entered() const noexcept;

  /// Makes the descriptor readable, or unreadable.
  void wake_self() noexcept;
  void clear() noexcept;

 private:
  /// An entry that nobody has, or whose process or socket is gone; nullptr when there is none.
  static layout::Poller* vacant(Table table, Heap& heap);
  bool ready_to_wake() noexcept;

  os::Waker waker_;
  os::WakeSocket socket_;
  pid_t owner_ = 0;  // of the socket
};

}  // namespace shoal::ipc
