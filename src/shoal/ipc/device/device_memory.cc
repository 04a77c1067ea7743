#include "shoal/ipc/device/device_memory.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "shoal/ipc/device/device_record.h"
#include "shoal/ipc/heap/descriptor_broker.h"
#include "shoal/os/process/signals.h"

namespace shoal::ipc {

using shm::cuda::DriverError;

namespace {

/// How many things that may be over each call looks at.
constexpr std::size_t kInPassing = 16;
/// How many the thread looks at, each time; it looks less and less often while it finds nothing.
constexpr std::size_t kAtOnce = 256;
constexpr auto kFirstPause = std::chrono::milliseconds(20);
constexpr auto kLastPause = std::chrono::milliseconds(1000);

std::string owner_text(const Heap& heap, const DeviceRecord& record) {
  const pid_t pid = heap.pid_of(ProcessSlot::from(record.owner));
  return pid != 0 ? fmt::format("process {}", pid) : "the process";
}

}  // namespace

DeviceMemory& DeviceMemory::here() {
  // Never destroyed: storages are released until the very end of the process. A forked child begins
  // anew, for it cannot use the driver.
  static DeviceMemory* instance = nullptr;
  static std::mutex mutex;
  static const int watched = ::pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                                              [] {
                                                instance = nullptr;
                                                mutex.unlock();
                                              });
  if (watched != 0) throw SystemError("see to it that forks leave device memory alone", watched);
  const std::lock_guard lock(mutex);
  if (instance == nullptr) instance = new DeviceMemory;
  return *instance;
}

DeviceMemory::Device DeviceMemory::device(int index) {
  const std::lock_guard lock(mutex_);
  return device_locked(index);
}

DeviceMemory::Device DeviceMemory::device_locked(int index) {
  Device& device = devices_[index];
  if (!device) device = shm::cuda::Device::open(index);
  return device;
}

int DeviceMemory::index_of(const shm::cuda::abi::Uuid& uuid) {
  for (const auto& [index, device] : devices_) {
    if (device && device->uuid() == uuid) return index;
  }
  const int index = shm::cuda::Device::find(uuid);
  if (index >= 0) return index;
  throw Error(fmt::format(
      "the tensor lies on CUDA device {}, which this process does not see: start it with "
      "that device in CUDA_VISIBLE_DEVICES, or send tensor.cpu()",
      shm::cuda::uuid_text(uuid)));
}

DeviceView DeviceMemory::give(int index, Address address, std::uint64_t bytes,
                              std::shared_ptr<void> keep) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  step(kInPassing, garbage);
  DeviceView view;
  view.device = device_locked(index);
  view.address = address;
  view.bytes = bytes;
  const shm::cuda::IpcPlace place = shm::cuda::ipc_place_of(*view.device, address);
  view.record = new_device_record(DeviceKind::kForeign, view.device->uuid());
  DeviceRecord& record = device_record(view.record);
  record.bytes = bytes;
  record.offset = place.offset;
  record.handle = place.handle;
  given_.insert_or_assign(Key(view.record.offset(), view.record.serial()),
                          Given{view, std::move(keep)});
  return view;
}

DeviceView DeviceMemory::allocate(int index, std::uint64_t bytes) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  step(kInPassing, garbage);
  DeviceView view;
  view.device = device_locked(index);
  view.bytes = bytes;
  auto range = segments_.allocate(view.device, bytes);
  const DeviceSegment& segment = *range->segment();
  view.address = segment.memory().address() + range->offset();
  view.segment = {range->segment(), &segment.memory()};
  view.record = new_device_record(DeviceKind::kRange, view.device->uuid());
  DeviceRecord& record = device_record(view.record);
  record.bytes = bytes;
  record.offset = range->offset();
  record.segment = segment.block().offset();
  record.segment_serial = segment.block().serial();
  view.record.heap()->hold(view.record.offset(), std::array{segment.block().offset()});
  given_.insert_or_assign(Key(view.record.offset(), view.record.serial()),
                          Given{view, std::move(range)});
  return view;
}

DeviceView DeviceMemory::open(Block block) {
  const DeviceRecord& record = device_record(block);
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  step(kInPassing, garbage);
  const auto given = given_.find(Key(block.offset(), block.serial()));
  if (given != given_.end()) return given->second.view;
  DeviceView view;
  view.device = device_locked(index_of(record.uuid));
  view.bytes = record.bytes;
  view.record = std::move(block);
  if (record.kind == DeviceKind::kRange) {
    view.segment = segment_of(view, Key(record.segment, record.segment_serial));
    view.address = view.segment->address() + record.offset;
  } else if (record.kind == DeviceKind::kForeign) {
    view.foreign = foreign_of(view);
    view.address = view.foreign->address() + record.offset;
  } else {
    throw InvalidArgument("this block of the heap describes no memory of a tensor");
  }
  return view;
}

std::shared_ptr<const shm::cuda::Memory> DeviceMemory::segment_of(const DeviceView& view,
                                                                  Key segment) {
  auto& known = imported_[segment];
  if (auto memory = known.lock()) return memory;
  std::erase_if(imported_, [&](const auto& entry) {
    return entry.second.expired() && entry.first != segment;
  });
  const Block block = Block::acquire(segment.first, segment.second);
  const DeviceRecord& record = device_record(block);
  const os::Fd fd = fetch_descriptor(segment.first, segment.second);
  if (!fd) {
    throw MemoryGone(fmt::format(
        "the memory that {} shared on CUDA device {} cannot be reached: the process that kept its "
        "descriptor for the family has ended. Have a process that outlives the others share a "
        "device tensor, or start them, first",
        owner_text(*block.heap(), record), shm::cuda::uuid_text(record.uuid)));
  }
  auto memory = std::make_shared<const shm::cuda::Memory>(
      shm::cuda::Memory::import(view.device, fd.get(), record.bytes));
  known = memory;
  return memory;
}

std::shared_ptr<const shm::cuda::IpcMemory> DeviceMemory::foreign_of(const DeviceView& view) {
  const DeviceRecord& record = device_record(view.record);
  auto& known = opened_[record.handle];
  if (auto memory = known.lock()) return memory;
  std::erase_if(opened_, [&](const auto& entry) {
    return entry.second.expired() && entry.first != record.handle;
  });
  const auto gone = [&] {
    return MemoryGone(fmt::format(
        "the CUDA tensor's memory went with {} that sent it: torch's allocator made it there. Keep "
        "that process until its tensors are received, or have it share them with share_memory_() "
        "or SharedTensor(), whose memory outlives it",
        owner_text(*view.record.heap(), record)));
  };
  const Heap& heap = *view.record.heap();
  if (!heap.alive(ProcessSlot::from(record.owner))) throw gone();
  try {
    auto memory = std::make_shared<const shm::cuda::IpcMemory>(view.device, record.handle);
    opened_[record.handle] = memory;
    return memory;
  } catch (const DriverError&) {
    if (!heap.alive(ProcessSlot::from(record.owner))) throw gone();
    throw;
  }
}

void DeviceMemory::leave_at_broker(const DeviceView& view) {
  const DeviceRecord& record = device_record(view.record);
  if (record.kind != DeviceKind::kRange) return;
  const Block segment = Block::acquire(record.segment, record.segment_serial);
  const auto broker =
      ProcessSlot::from(device_record(segment).word.load(std::memory_order_relaxed));
  if (broker && segment.heap()->alive(broker)) return;
  const os::Fd fd = view.segment->export_fd();
  const ProcessSlot keeper = leave_descriptor(segment, fd.get());
  device_record(segment).word.store(keeper.packed(), std::memory_order_relaxed);
}

Block DeviceMemory::mark(const DeviceView& view, Stream stream) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  step(kInPassing, garbage);
  if (view.device->is_capturing(stream)) {
    throw InvalidState(
        "a CUDA tensor cannot be sent while its stream records a graph: send it before or after");
  }
  leave_at_broker(view);
  return events_.mark(view.device, stream);
}

void DeviceMemory::await(const Block& mark, const DeviceView& view, Stream stream) {
  if (device_record(mark).kind != DeviceKind::kEvent) {
    throw InvalidArgument("this block of the heap describes no event");
  }
  const std::lock_guard lock(mutex_);
  events_.await(mark, view.device, stream);
}

void DeviceMemory::release(DeviceView view, Stream stream) noexcept {
  Garbage garbage;
  try {
    const std::lock_guard lock(mutex_);
    // torch's allocator takes care of its own streams.
    if (!view.segment && !view.foreign) {
      let_go(std::move(view), garbage);
    } else {
      Releasing releasing{std::move(view), stream, std::nullopt};
      if (is_over(releasing)) {
        let_go(std::move(releasing.view), garbage);
      } else {
        releasing_.push_back(std::move(releasing));
      }
    }
    step(kInPassing, garbage);
    if (!left_.empty() || !releasing_.empty()) watch();
  } catch (const std::exception&) {
    // No memory for lists: the memory is released with the view.
  }
}

/// Whether the work before the release is done. Where the driver fails or is gone, it counts as
/// done.
bool DeviceMemory::is_over(Releasing& releasing) {
  try {
    if (!releasing.event) {
      if (releasing.view.device->is_capturing(releasing.stream)) return false;
      releasing.event = events_.take(releasing.view.device);
      releasing.event->record(releasing.stream);
    }
    if (!releasing.event->done()) return false;
    events_.put_back(*std::exchange(releasing.event, std::nullopt));
  } catch (const DriverError&) {
  }
  return true;
}

void DeviceMemory::let_go(DeviceView view, Garbage& garbage) {
  const Key key(view.record.offset(), view.record.serial());
  const DeviceRecord& record = device_record(view.record);
  const Key segment(record.segment, record.segment_serial);
  const auto heap = view.record.heap();
  const bool given = given_.contains(key);
  view = {};
  if (given) {
    if (!drop_given(key, garbage)) left_.push_back(key);
  } else if (segment.first != 0 && !heap->lives(segment.first, segment.second)) {
    look_at_descriptors();
  }
}

/// Drops memory that was kept for others when nobody else holds it; false when somebody does.
bool DeviceMemory::drop_given(Key key, Garbage& garbage) {
  const auto at = given_.find(key);
  if (at == given_.end()) return true;
  if (!at->second.view.record.heap()->is_sole_holder(key.first)) return false;
  garbage.push_back(std::move(at->second.keep));
  garbage.push_back(std::const_pointer_cast<shm::cuda::Memory>(at->second.view.segment));
  given_.erase(at);
  return true;
}

void DeviceMemory::step(std::size_t at_most, Garbage& garbage) {
  for (std::size_t looks = std::min(at_most, releasing_.size()); looks > 0; --looks) {
    Releasing releasing = std::move(releasing_.front());
    releasing_.pop_front();
    if (is_over(releasing)) {
      let_go(std::move(releasing.view), garbage);
    } else {
      releasing_.push_back(std::move(releasing));
    }
  }
  for (std::size_t looks = std::min(at_most, left_.size()); looks > 0; --looks) {
    const Key key = left_.front();
    left_.pop_front();
    if (!drop_given(key, garbage)) left_.push_back(key);
  }
}

void DeviceMemory::collect() noexcept {
  try {
    {
      Garbage garbage;  // goes without the lock: it may want the GIL
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !clearing_; });
      step(std::max(releasing_.size(), left_.size()), garbage);
      events_.collect(events_.under_way());
    }
    const std::lock_guard lock(mutex_);
    segments_.trim();
  } catch (const std::exception&) {
    // No memory for lists: the next time.
  }
}

/// Starts the thread. Without it, calls find what is over.
void DeviceMemory::watch() {
  if (watched_ || finished_) return;
  const auto blocked = os::BlockSignals::all();  // in that thread, too: they are for the others
  std::thread([this] { look_until_all_is_over(); }).detach();
  watched_ = true;
}

void DeviceMemory::look_until_all_is_over() noexcept {
  std::unique_lock lock(mutex_);
  auto pause = kFirstPause;
  while (!finished_ && !(left_.empty() && releasing_.empty())) {
    changed_.wait_for(lock, pause);
    const std::size_t before = left_.size() + releasing_.size();
    Garbage garbage;
    try {
      step(kAtOnce, garbage);
      const bool any = left_.size() + releasing_.size() < before;
      pause = any ? kFirstPause : std::min(2 * pause, kLastPause);
      clearing_ = !garbage.empty();
      lock.unlock();
      garbage.clear();
      if (!any) Heap::here()->sweep();  // who holds it may be dead
    } catch (const std::exception&) {
      // No memory for lists: the next time.
    }
    if (!lock.owns_lock()) lock.lock();
    if (std::exchange(clearing_, false)) changed_.notify_all();
  }
  watched_ = false;
  changed_.notify_all();
}

void DeviceMemory::finish() noexcept {
  std::unique_lock lock(mutex_);
  try {
    events_.finish();
  } catch (const std::exception&) {
    // Work that cannot be waited for has failed.
  }
  finished_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !watched_; });
}

DeviceMemoryStats DeviceMemory::stats() {
  const std::lock_guard lock(mutex_);
  const auto alive = [](const auto& entry) { return !entry.second.expired(); };
  return {.given = given_.size(),
          .left = left_.size(),
          .releasing = releasing_.size(),
          .mapped = static_cast<std::uint64_t>(std::ranges::count_if(imported_, alive) +
                                               std::ranges::count_if(opened_, alive)),
          .segments = segments_.count(),
          .marks = events_.under_way()};
}

}  // namespace shoal::ipc
