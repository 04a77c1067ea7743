#include "shoal/ipc/heap/heap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "shoal/ipc/heap/heap_fork.h"
#include "shoal/os/fault_point.h"

namespace shoal::ipc {

using namespace layout;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Free memory that is kept for the next blocks.
std::uint64_t cache_pages() noexcept {
  const auto machine = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::clamp(machine / 16, 64 * kMiB, 1024 * kMiB) / kPage;
}

void note(Transaction& change, std::span<const Write> writes) {
  for (const Write& write : writes) change.set(write.place, write.value);
}

void require_few(std::span<const Write> writes) {
  if (writes.size() > Heap::kMaxWrites) {
    throw InvalidArgument(fmt::format("{} words in one change of the shared heap; {} at most",
                                      writes.size(), Heap::kMaxWrites));
  }
}

}  // namespace

std::shared_ptr<Heap> Heap::create(HeapOptions options) {
  const std::lock_guard lock(HeapFork::mutex());
  if (HeapFork::heap() != nullptr) {
    throw InvalidState("this process has a shared heap already; it can have one");
  }
  return install(HeapSegment::create(options.bytes));
}

std::shared_ptr<Heap> Heap::attach(os::Fd fd) {
  HeapSegment segment = HeapSegment::attach(std::move(fd));
  const std::lock_guard lock(HeapFork::mutex());
  if (const auto& heap = HeapFork::heap(); heap != nullptr) {
    if (heap->id() == segment.header().id) return heap;
    throw InvalidState(
        "this process has a shared heap already, of another family of processes: attach before "
        "anything is shared");
  }
  auto heap = install(std::move(segment));
  heap->sweep();
  return heap;
}

std::shared_ptr<Heap> Heap::here() {
  const std::lock_guard lock(HeapFork::mutex());
  if (const auto& heap = HeapFork::heap(); heap != nullptr) return heap;
  return install(HeapSegment::create(0));
}

bool Heap::exists() noexcept {
  const std::lock_guard lock(HeapFork::mutex());
  return HeapFork::heap() != nullptr;
}

std::shared_ptr<Heap> Heap::install(HeapSegment segment) {
  HeapFork::watch();
  const std::shared_ptr<Heap> heap(new Heap(std::move(segment)));
  HeapFork::heap() = heap;
  return heap;
}

Heap::Heap(HeapSegment segment)
    : segment_(std::move(segment)),
      blocks_(segment_),
      references_(segment_),
      slots_(segment_),
      cache_pages_(cache_pages()) {
  for (bool swept = false;; swept = true) {
    {
      HeapLock lock(segment_);
      if (const auto slot = slots_.take(lock.change, os::this_process(), SlotState::kAlive)) {
        lock.change.commit();
        self_ = *slot;
        return;
      }
    }
    if (swept) {
      throw Error(fmt::format("all {} places for processes in the shared heap are taken",
                              segment_.header().slots));
    }
    sweep();
  }
}

Heap::~Heap() = default;

void Heap::require_usable() const {
  if (lost_) {
    throw InvalidState(
        "the shared heap is lost to this process: its parent ended, or was short of memory, while "
        "it forked");
  }
}

Offset Heap::allocate(std::size_t bytes, BlockKind kind) {
  require_usable();
  const BlockSpec spec{bytes, static_cast<std::uint64_t>(kind)};
  if (bytes > segment_.header().pages * kPage) throw_out_of_memory(spec, "larger than all of it");
  Offset payload = 0;
  for (bool freed = false;; freed = true) {
    try {
      while (!allocate_from_free(spec, payload) && !allocate_from_new(spec, payload)) {
      }
      return payload;
    } catch (const OutOfMemory&) {
      if (freed) throw;
      sweep();
      purge(0, true);
    }
  }
}

bool Heap::allocate_from_free(const BlockSpec& spec, Offset& payload) {
  const std::lock_guard guard(mutex_);
  held_.reserve_one();
  HeapLock lock(segment_);
  const auto block = blocks_.take(lock.change, spec);
  if (!block) return false;
  const std::uint64_t ref = references_.make(lock.change, *block, self_holder());
  SHOAL_FAULT_POINT("heap.allocate.before");
  lock.change.commit();
  SHOAL_FAULT_POINT("heap.allocate.after");
  held_.insert(*block, ref);
  payload = *block + sizeof(BlockWords);
  return true;
}

bool Heap::allocate_from_new(const BlockSpec& spec, Offset& payload) {
  const std::lock_guard pages_guard(pages_mutex_);
  PageRun run;
  acquire_pages(spec, run);
  const std::lock_guard guard(mutex_);
  held_.reserve_one();
  try {
    HeapLock lock(segment_);
    const auto block = blocks_.put_run(lock.change, run, spec);
    lock.change.set(self_place() + offsetof(ProcessWords, pending), 0);
    std::uint64_t ref = 0;
    if (block) ref = references_.make(lock.change, *block, self_holder());
    SHOAL_FAULT_POINT("heap.allocate.paged");
    lock.change.commit();
    if (!block) return false;
    held_.insert(*block, ref);
    payload = *block + sizeof(BlockWords);
    return true;
  } catch (const OutOfMemory&) {
    give_back_pending(run.first);
    throw;
  }
}

void Heap::acquire(Offset payload, std::uint64_t serial) {
  require_usable();
  const std::lock_guard guard(mutex_);
  if (payload < sizeof(BlockWords)) throw InvalidArgument("offset 0 is no block");
  Held* held = held_.find(payload - sizeof(BlockWords));
  if (held != nullptr && (serial == 0 || serial_of(payload) == serial)) {
    ++held->count;
    return;
  }
  held_.reserve_one();
  HeapLock lock(segment_);
  const std::uint64_t block = blocks_.find(payload, serial);
  const std::uint64_t ref = references_.make(lock.change, block, self_holder());
  SHOAL_FAULT_POINT("heap.acquire.before");
  lock.change.commit();
  SHOAL_FAULT_POINT("heap.acquire.after");
  held_.insert(block, ref);
}

void Heap::release(Offset payload) noexcept {
  if (lost_) return;
  bool dying = false;
  bool full = false;
  {
    const std::lock_guard guard(mutex_);
    Held* held = held_.find(payload - sizeof(BlockWords));
    SHOAL_CHECK(held != nullptr, "release of a block that this process does not hold");
    if (--held->count > 0) return;
    const std::uint64_t ref = held->ref;
    held_.erase(held);
    SHOAL_FAULT_POINT("heap.release.before");
    HeapLock lock(segment_);
    blocks_.drop(lock.change, ref);
    lock.change.commit();
    SHOAL_FAULT_POINT("heap.release.after");
    dying = segment_.load(SHOAL_HEAP_WORD(dying)) != 0;
    full = segment_.load(SHOAL_HEAP_WORD(free_pages) + 8) > cache_pages_;
  }
  if (dying) finish_dying();
  if (full) purge(cache_pages_ - cache_pages_ / 16, false);
}

void Heap::hold(Offset holder, std::span<const Offset> blocks) {
  require_usable();
  constexpr std::size_t kAtOnce = 6;
  const std::lock_guard guard(mutex_);
  for (std::size_t begin = 0; begin < blocks.size(); begin += kAtOnce) {
    HeapLock lock(segment_);
    const std::uint64_t by = blocks_.find(holder, 0);
    for (const Offset block : blocks.subspan(begin, std::min(kAtOnce, blocks.size() - begin))) {
      references_.make(lock.change, blocks_.find(block, 0), Holder::block(by));
    }
    SHOAL_FAULT_POINT("heap.hold.before");
    lock.change.commit();
    SHOAL_FAULT_POINT("heap.hold.after");
  }
}

void Heap::give(Offset payload, Offset holder, std::span<const Write> writes) {
  require_usable();
  require_few(writes);
  const std::lock_guard guard(mutex_);
  Held* held = held_.find(payload - sizeof(BlockWords));
  if (held == nullptr) {
    throw InvalidState(
        fmt::format("cannot give the block at {:#x}: this process does not hold it", payload));
  }
  HeapLock lock(segment_);
  const std::uint64_t block = held->block;
  const Holder to = Holder::block(blocks_.find(holder, 0));
  if (lock.change.get(block + offsetof(BlockWords, given)) != 0) {
    throw InvalidState(fmt::format("the block at {:#x} is given to a holder already", payload));
  }
  std::uint64_t ref = held->ref;
  if (held->count == 1) {
    references_.move(lock.change, ref, to);
  } else {
    ref = references_.make(lock.change, block, to);
  }
  lock.change.set(block + offsetof(BlockWords, given), ref);
  note(lock.change, writes);
  SHOAL_FAULT_POINT("heap.give.before");
  lock.change.commit();
  SHOAL_FAULT_POINT("heap.give.after");
  if (--held->count == 0) held_.erase(held);
}

void Heap::take(Offset payload, Offset holder, std::span<const Write> writes) {
  require_usable();
  require_few(writes);
  const std::lock_guard guard(mutex_);
  held_.reserve_one();
  HeapLock lock(segment_);
  const std::uint64_t block = blocks_.find(payload, 0);
  const std::uint64_t ref = lock.change.get(block + offsetof(BlockWords, given));
  if (ref == 0 || references_.holder(lock.change, ref) != Holder::block(blocks_.find(holder, 0))) {
    throw InvalidState(
        fmt::format("the block at {:#x} was not given to the holder at {:#x}", payload, holder));
  }
  Held* held = held_.find(block);
  if (held != nullptr) {
    references_.drop(lock.change, ref);
  } else {
    references_.move(lock.change, ref, self_holder());
    lock.change.set(block + offsetof(BlockWords, given), 0);
  }
  note(lock.change, writes);
  SHOAL_FAULT_POINT("heap.take.before");
  lock.change.commit();
  SHOAL_FAULT_POINT("heap.take.after");
  if (held != nullptr) {
    ++held->count;
  } else {
    held_.insert(block, ref);
  }
}

void Heap::write(std::span<const Write> writes) noexcept {
  SHOAL_CHECK(writes.size() <= kMaxWrites, "too many words in one change of the shared heap");
  HeapLock lock(segment_);
  note(lock.change, writes);
  lock.change.commit();
}

std::size_t Heap::size_of(Offset block) const noexcept {
  return segment_.load(block - sizeof(BlockWords) + offsetof(BlockWords, bytes));
}

std::uint64_t Heap::serial_of(Offset block) const noexcept {
  return segment_.load(block - sizeof(BlockWords) + offsetof(BlockWords, serial));
}

bool Heap::lives(Offset payload, std::uint64_t serial) const noexcept {
  const HeapLock lock(segment_);
  return blocks_.is_live(payload, serial);
}

bool Heap::is_given(Offset payload, Offset holder, BlockKind kind) const noexcept {
  const HeapLock lock(segment_);
  if (!blocks_.is_live(payload, 0)) return false;
  const std::uint64_t block = payload - sizeof(BlockWords);
  const std::uint64_t tag = block_tag(static_cast<std::uint64_t>(kind), BlockState::kLive);
  return segment_.load(block + offsetof(BlockWords, tag)) == tag &&
         references_.is_given(block, Holder::block(holder - sizeof(BlockWords)));
}

bool Heap::is_sole_holder(Offset payload) noexcept {
  const std::lock_guard guard(mutex_);
  const std::uint64_t block = payload - sizeof(BlockWords);
  const Held* held = held_.find(block);
  if (lost_ || held == nullptr || held->count != 1) return false;
  const HeapLock lock(segment_);
  return segment_.load(block + offsetof(BlockWords, refs)) == 1;
}

bool Heap::contains(const void* address) const noexcept {
  const auto* byte = static_cast<const std::byte*>(address);
  return byte >= base() + segment_.data_at() && byte < base() + segment_.bytes();
}

Offset Heap::offset_of(const void* payload) const noexcept {
  return static_cast<Offset>(static_cast<const std::byte*>(payload) - base());
}

Offset Heap::held_around(const void* address) noexcept {
  if (!contains(address)) return 0;
  const Offset wanted = offset_of(address);
  const std::lock_guard lock(mutex_);
  if (held_.find(wanted - sizeof(BlockWords)) != nullptr) return wanted;
  for (const Held& held : held_.places()) {
    const Offset payload = held.block + sizeof(BlockWords);
    if (held.block != 0 && payload <= wanted && wanted - payload < size_of(payload)) return payload;
  }
  return 0;
}

void Heap::finish_dying() noexcept {
  constexpr int kAtOnce = 32;  // for others to get their turn
  for (bool more = true; more;) {
    HeapLock lock(segment_);
    for (int step = 0; more && step < kAtOnce; ++step) {
      more = blocks_.finish_one(lock.change);
      lock.change.commit();
      SHOAL_FAULT_POINT("heap.release.dying");
    }
  }
}

}  // namespace shoal::ipc
