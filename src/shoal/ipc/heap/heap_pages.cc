// Where the memory of new blocks comes from, and when it goes back to the kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "shoal/ipc/heap/heap.h"
#include "shoal/os/fault_point.h"
#include "shoal/os/limits/limits.h"

namespace shoal::ipc {

using namespace layout;

namespace {

/// Giving back so many pages takes about two milliseconds.
constexpr std::uint64_t kPunchedAtOnce = (std::uint64_t{16} << 20) / kPage;

}  // namespace

/// Gets a run with memory, and notes it in this process's slot as pending, where sweep() finds it.
void Heap::acquire_pages(const BlockSpec& spec, PageRun& run) {
  const std::uint64_t pages = spec.run_pages();
  look_at_memory(spec);
  {
    HeapLock lock(segment_);
    auto found = segment_.runs().take(lock.change, RunState::kClean, pages);
    if (!found) found = segment_.runs().grow(lock.change, pages);
    if (!found) throw_out_of_memory(spec, "all of it is in use");
    const std::uint64_t top = lock.change.get(SHOAL_HEAP_WORD(top));
    segment_.make_ready(lock.change, SHOAL_HEAP_WORD(runs_ready), segment_.header().runs_at,
                        sizeof(RunWords), top);
    segment_.runs().tag(lock.change, *found, RunState::kPending);
    lock.change.set(self_place() + offsetof(ProcessWords, pending), found->first + 1);
    SHOAL_FAULT_POINT("heap.pages.before");
    lock.change.commit();
    run = *found;
  }
  SHOAL_FAULT_POINT("heap.pages.reserved");
  const int error = segment_.memfd().populate(segment_.page_place(run.first), pages * kPage);
  SHOAL_FAULT_POINT("heap.pages.populated");
  if (error != 0) {
    give_back_pending(run.first);
    throw_out_of_memory(spec, SystemError("the kernel refuses", error).what());
  }
}

void Heap::give_back_pending(std::uint64_t first_page) noexcept {
  std::uint64_t pages = 0;
  {
    HeapLock lock(segment_);
    pages = segment_.runs().length(lock.change, first_page);
  }
  static_cast<void>(segment_.memfd().punch(segment_.page_place(first_page), pages * kPage));
  SHOAL_FAULT_POINT("heap.pages.punched");
  HeapLock lock(segment_);
  segment_.runs().put(lock.change, {first_page, pages}, RunState::kClean);
  lock.change.set(self_place() + offsetof(ProcessWords, pending), 0);
  lock.change.commit();
}

void Heap::purge(std::uint64_t keep_pages, bool must) noexcept {
  std::unique_lock guard(pages_mutex_, std::defer_lock);
  if (must) {
    guard.lock();
  } else if (!guard.try_lock()) {
    return;  // somebody does
  }
  for (;;) {
    std::uint64_t first = 0;
    {
      HeapLock lock(segment_);
      const std::uint64_t dirty = lock.change.get(SHOAL_HEAP_WORD(free_pages) + 8);
      if (dirty <= keep_pages) return;
      const auto run = segment_.runs().take_longest_dirty(
          lock.change, std::min(dirty - keep_pages, kPunchedAtOnce));
      if (!run) return;
      segment_.runs().tag(lock.change, *run, RunState::kPending);
      lock.change.set(self_place() + offsetof(ProcessWords, pending), run->first + 1);
      lock.change.commit();
      first = run->first;
    }
    SHOAL_FAULT_POINT("heap.purge.reserved");
    give_back_pending(first);
  }
}

/// A look at free memory costs as much as getting 100 KiB of it: once for an eighth of what is
/// left.
void Heap::look_at_memory(const BlockSpec& spec) {
  const std::uint64_t bytes = spec.run_pages() * kPage;
  if (bytes > budget_bytes_) {
    const os::MemoryLimit limit = os::available_memory();
    if (bytes > limit.bytes) {
      throw OutOfMemory(
          fmt::format("allocate {} bytes in the shared heap ({} leaves {} bytes; share less at a "
                      "time, or free memory)",
                      spec.bytes, limit.source, limit.bytes));
    }
    budget_bytes_ = std::max(bytes, limit.bytes / 8);
  }
  budget_bytes_ -= bytes;
}

void Heap::throw_out_of_memory(const BlockSpec& spec, const std::string& why) const {
  throw OutOfMemory(fmt::format(
      "allocate {} bytes in the shared heap of {} bytes, where blocks use {} bytes: {} (its size "
      "follows the machine's memory, ulimit -v and ulimit -f)",
      spec.bytes, segment_.bytes(), segment_.load(SHOAL_HEAP_WORD(live_bytes)), why));
}

}  // namespace shoal::ipc
