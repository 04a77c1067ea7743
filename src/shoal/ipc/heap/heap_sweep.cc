// Gives back what dead processes held.
#include <cstddef>

#include "shoal/ipc/heap/heap.h"
#include "shoal/ipc/heap/heap_fork.h"
#include "shoal/os/fault_point.h"

namespace shoal::ipc {

using namespace layout;

std::size_t Heap::sweep() {
  if (lost_) return 0;
  std::size_t swept = 0;
  for (std::uint32_t index = 0; index < slots_.count(); ++index) {
    const ProcessSlot slot = slots_.at(index);
    if (!slot || slot == self_ || slots_.alive(slot)) continue;
    const std::lock_guard guard(pages_mutex_);
    if (sweep_slot(slot)) ++swept;
  }
  finish_dying();
  return swept;
}

void Heap::process_ended(pid_t pid) noexcept {
  std::shared_ptr<Heap> heap;
  {
    const std::lock_guard lock(HeapFork::mutex());
    heap = HeapFork::heap();
  }
  if (heap == nullptr || heap->lost_) return;
  for (std::uint32_t index = 0; index < heap->slots_.count(); ++index) {
    const ProcessSlot slot = heap->slots_.at(index);
    if (!slot || heap->slots_.process(slot).pid != pid || heap->slots_.alive(slot)) continue;
    const std::lock_guard guard(heap->pages_mutex_);
    heap->sweep_slot(slot);
  }
  heap->finish_dying();
}

/// Any number of processes may sweep the same slot: each step is one transaction, and looks whether
/// anything is left to do. False when another process made the last step.
bool Heap::sweep_slot(ProcessSlot slot) {
  constexpr int kAtOnce = 32;  // for others to get their turn
  const std::uint64_t place = slots_.place(slot.index);
  {
    HeapLock lock(segment_);
    if (!slots_.condemn(lock.change, slot)) return false;
    lock.change.commit();
  }
  for (;;) {
    std::uint64_t pending = 0;
    {
      HeapLock lock(segment_);
      for (int step = 0; step < kAtOnce; ++step) {
        if (slots_.at(slot.index) != slot) return false;
        pending = lock.change.get(place + offsetof(ProcessWords, pending));
        const std::uint64_t ref = lock.change.get(place + offsetof(ProcessWords, held));
        if (pending != 0) {
          lock.change.set(place + offsetof(ProcessWords, pending), 0);
          lock.change.set(self_place() + offsetof(ProcessWords, pending), pending);
        } else if (ref != 0) {
          blocks_.drop(lock.change, ref);
        } else {
          slots_.release(lock.change, slot.index);
        }
        lock.change.commit();
        SHOAL_FAULT_POINT("heap.sweep.step");
        if (pending != 0) break;
        if (ref == 0) return true;
      }
    }
    if (pending != 0) give_back_pending(pending - 1);
  }
}

}  // namespace shoal::ipc
