// This process's part in telling pollers of a queue that there are items.
#pragma once

#include <sys/types.h>

#include <span>

#include "shoal/ipc/heap.h"
#include "shoal/ipc/queue_layout.h"
#include "shoal/os/wake_socket.h"

namespace shoal::ipc {

/// Sockets are made on demand: one in a process that polls, one in a process that puts while
/// somebody polls.
/// Threads: one at a time, under the queue's lock.
/// Fork: a child starts anew.
class QueuePollers {
 public:
  using Table = std::span<layout::Poller>;

  static bool any(Table table) noexcept;

  /// Wakes all that are in the table, and strikes those that are gone.
  void wake(Table table) noexcept;

  /// This process's descriptor; it enters itself. Throws SystemError; Error when the table is full.
  int enter(Table table, Heap& heap);
  bool entered() const noexcept;

  /// Makes the descriptor readable, or unreadable.
  void wake_self() noexcept;
  void clear() noexcept;

 private:
  bool ready_to_wake() noexcept;

  os::Waker waker_;
  os::WakeSocket socket_;
  pid_t owner_ = 0;  // of the socket
};

}  // namespace shoal::ipc
