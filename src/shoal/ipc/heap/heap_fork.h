// This process's heap, and what happens to it when the process forks.
//
// Before the fork the parent makes a slot for the child, with a reference on each block that it
// holds itself. The child takes the slot as the first thing in fork(). The parent waits until the
// child says so through a pipe; the end of the pipe says that there is no child. All this runs in
// handlers of pthread_atfork(), so it does not matter what code forks. Where there is no heap,
// nothing is done; a parent that holds nothing does not wait.
#pragma once

#include <memory>
#include <mutex>

#include "shoal/ipc/heap/heap.h"

namespace shoal::ipc {

/// The handlers, and what they share with Heap.
///
/// Threads: heap() and watch() under mutex(); prepare(), parent() and child() by the thread that
/// forks.
/// Death: of the parent during the fork: the heap is lost to the child, where every call throws
/// InvalidState. Of the child: its slot is swept as that of any dead process.
struct HeapFork {
  /// Guards heap() and watch(); held during a fork.
  static std::mutex& mutex();
  static std::shared_ptr<Heap>& heap();
  static void watch();

  static void prepare(Heap& heap) noexcept;
  static void parent(Heap& heap) noexcept;
  static void child(Heap& heap) noexcept;

 private:
  static void give_references(Heap& heap);
  static void wait_for_child(Heap& heap) noexcept;
};

}  // namespace shoal::ipc
