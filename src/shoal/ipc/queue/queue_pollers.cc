#include "shoal/ipc/queue/queue_pollers.h"

#include <fmt/format.h>
#include <unistd.h>

#include "shoal/os/error.h"

namespace shoal::ipc {

bool QueuePollers::any(Table table) noexcept {
  for (const layout::Poller& poller : table) {
    if (poller.process != 0) return true;
  }
  return false;
}

bool QueuePollers::ready_to_wake() noexcept {
  if (waker_) return true;
  try {
    waker_ = os::Waker::create();
    return true;
  } catch (const SystemError&) {  // no descriptor is free: pollers look when they time out
    return false;
  }
}

void QueuePollers::wake(Table table) noexcept {
  if (!ready_to_wake()) return;
  for (layout::Poller& poller : table) {
    if (poller.process != 0 && !waker_.wake(poller.name)) poller.process = 0;
  }
}

layout::Poller* QueuePollers::vacant(Table table, Heap& heap) {
  for (layout::Poller& poller : table) {
    if (poller.process == 0 || !heap.alive(ProcessSlot::from(poller.process))) return &poller;
  }
  for (layout::Poller& poller : table) {
    if (!os::WakeSocket::exists(poller.name)) return &poller;
  }
  return nullptr;
}

bool QueuePollers::entered() const noexcept { return socket_ && owner_ == ::getpid(); }

int QueuePollers::enter(Table table, Heap& heap) {
  if (entered()) return socket_.fd();
  os::WakeSocket socket = os::WakeSocket::create();
  layout::Poller* const free = vacant(table, heap);
  if (free == nullptr) {
    throw Error(fmt::format(
        "{} processes wait for the descriptor (fileno()) of one queue already, the most there may "
        "be; wait with get() or poll() instead",
        table.size()));
  }
  free->process = 0;
  free->name = socket.name();
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the name before the entry counts
  free->process = heap.self().packed();
  socket_ = std::move(socket);
  owner_ = ::getpid();
  return socket_.fd();
}

void QueuePollers::wake_self() noexcept {
  if (entered() && ready_to_wake()) waker_.wake(socket_.name());
}

void QueuePollers::clear() noexcept {
  if (entered()) socket_.clear();
}

}  // namespace shoal::ipc
