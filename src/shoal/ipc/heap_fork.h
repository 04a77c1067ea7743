// This process's heap, and what happens to it when the process forks.
//
// Before the fork the parent makes a slot for the child and gives it a reference on all that it
// holds itself; the child takes the slot as the first thing in fork(), and the parent waits for its
// word (a pipe, whose end also says that there is no child). Runs in the handlers of
// pthread_atfork, so it does not matter who forks. Nothing is done before there is a heap; a parent
// that holds nothing waits for nothing.
#pragma once

#include <memory>
#include <mutex>

#include "shoal/ipc/heap.h"

namespace shoal::ipc {

struct HeapFork {
  /// Of heap() and watch(); held during a fork.
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
