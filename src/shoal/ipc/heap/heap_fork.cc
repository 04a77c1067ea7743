#include "shoal/ipc/heap/heap_fork.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "shoal/os/fault_point.h"

namespace shoal::ipc {

using namespace layout;

namespace {

/// A fork that is under way; one at a time, guarded by HeapFork::mutex().
struct Birth {
  ProcessSlot slot;      // nobody: the parent holds nothing
  bool refused = false;  // the parent could not give the child what it holds
  int word[2] = {-1, -1};
};

Birth& birth() {
  static Birth value;
  return value;
}

void close_end(int& fd) noexcept {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

/// How long a parent without a descriptor left for a pipe waits for its child's word.
constexpr int kBlindWaits = 2000;

void on_prepare() {
  HeapFork::mutex().lock();
  if (const auto& heap = HeapFork::heap()) HeapFork::prepare(*heap);
}

void on_parent() {
  if (const auto& heap = HeapFork::heap()) HeapFork::parent(*heap);
  HeapFork::mutex().unlock();
}

void on_child() {
  if (const auto& heap = HeapFork::heap()) HeapFork::child(*heap);
  HeapFork::mutex().unlock();
}

}  // namespace

std::mutex& HeapFork::mutex() {
  static std::mutex value;
  return value;
}

std::shared_ptr<Heap>& HeapFork::heap() {
  // Never destroyed: blocks may outlive the statics of other files.
  static auto* value = new std::shared_ptr<Heap>;
  return *value;
}

void HeapFork::watch() {
  static const int once = ::pthread_atfork(on_prepare, on_parent, on_child);
  if (once != 0) throw SystemError("see to it that forks share the heap", once);
}

void HeapFork::prepare(Heap& heap) noexcept {
  heap.pages_mutex_.lock();
  heap.mutex_.lock();
  birth() = {};
  if (heap.lost_ || heap.held_.size() == 0) return;
  try {
    give_references(heap);
  } catch (const std::exception&) {
    birth().refused = true;
  }
  if (::pipe2(birth().word, O_CLOEXEC) != 0) birth().word[0] = birth().word[1] = -1;
  SHOAL_FAULT_POINT("heap.fork.prepared");
}

void HeapFork::give_references(Heap& heap) {
  {
    HeapLock lock(heap.segment_);
    const auto slot = heap.slots_.take(lock.change, os::this_process(), SlotState::kUnborn);
    if (!slot) throw Error("no slot for a child");
    lock.change.commit();
    birth().slot = *slot;
  }
  const Holder child = Holder::process(heap.slots_.place(birth().slot.index));
  for (Held& held : heap.held_.places()) {
    if (held.block == 0) continue;
    HeapLock lock(heap.segment_);
    held.child_ref = heap.references_.make(lock.change, held.block, child);
    lock.change.commit();
    SHOAL_FAULT_POINT("heap.fork.step");
  }
}

void HeapFork::parent(Heap& heap) noexcept {
  const int error = errno;
  heap.mutex_.unlock();
  if (birth().slot) wait_for_child(heap);
  heap.pages_mutex_.unlock();
  errno = error;
}

void HeapFork::wait_for_child(Heap& heap) noexcept {
  const ProcessSlot slot = birth().slot;
  const auto adopted = [&] { return heap.slots_.state(slot.index) != SlotState::kUnborn; };
  close_end(birth().word[1]);
  if (birth().word[0] >= 0) {
    // In slices: somebody else's fork may have a copy of the other end.
    for (pollfd word{birth().word[0], POLLIN, 0}; ::poll(&word, 1, 100) <= 0 && !adopted();) {
    }
  } else {
    for (int wait = 0; wait < kBlindWaits && !adopted(); ++wait) ::poll(nullptr, 0, 1);
  }
  close_end(birth().word[0]);
  // No child, or one that died at once.
  if (!adopted()) static_cast<void>(heap.sweep_slot(slot));
}

void HeapFork::child(Heap& heap) noexcept {
  const os::ProcessId me = os::this_process();
  bool ready = !heap.lost_ && !birth().refused;
  if (ready) {
    try {
      HeapLock lock(heap.segment_);
      if (birth().slot) {
        ready = heap.slots_.adopt(lock.change, birth().slot, me);
        heap.self_ = birth().slot;
      } else {
        const auto slot = heap.slots_.take(lock.change, me, SlotState::kAlive);
        ready = slot.has_value();
        if (slot) heap.self_ = *slot;
      }
      SHOAL_FAULT_POINT("heap.fork.adopting");
      if (ready) lock.change.commit();
    } catch (const std::exception&) {
      ready = false;
    }
  }
  if (ready && birth().slot) {
    for (Held& held : heap.held_.places()) held.ref = held.child_ref;
  }
  heap.lost_ = !ready;
  if (birth().word[1] >= 0) static_cast<void>(!::write(birth().word[1], "", 1));
  close_end(birth().word[0]);
  close_end(birth().word[1]);
  heap.mutex_.unlock();
  heap.pages_mutex_.unlock();
}

}  // namespace shoal::ipc
