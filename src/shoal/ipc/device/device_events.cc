#include "shoal/ipc/device/device_events.h"

#include <algorithm>
#include <utility>

#include "shoal/ipc/device/device_record.h"

namespace shoal::ipc {
namespace {

using shm::cuda::Event;

/// The most events of other processes that are kept open.
constexpr std::size_t kMostOpened = 512;

/// Work that failed is over, too; the driver tells whoever uses its stream next.
bool is_over(const Event& event) {
  try {
    return event.done();
  } catch (const shm::cuda::DriverError&) {
    return true;
  }
}

}  // namespace

Block DeviceEvents::mark(const Device& device, Stream stream) {
  collect(16);
  if (sent_.size() >= kMost) {
    sent_.front().event.wait();
    collect(sent_.size());
  }
  auto& idle = idle_shared_[device->index()];
  Event event = idle.empty() ? Event::create_shared(device) : std::move(idle.back());
  if (!idle.empty()) idle.pop_back();
  event.record(stream);
  if (event.done()) {
    idle.push_back(std::move(event));
    return {};
  }
  Block block = new_device_record(DeviceKind::kEvent, device->uuid());
  device_record(block).handle = event.handle();
  sent_.push_back({std::move(event), block});
  return block;
}

void DeviceEvents::await(const Block& mark, const Device& device, Stream stream) {
  const DeviceRecord& record = device_record(mark);
  if (record.word.load(std::memory_order_acquire) != 0) return;
  const auto heap = mark.heap();
  if (record.owner == heap->self().packed()) {
    const auto at = std::ranges::find_if(
        sent_, [&](const Sent& sent) { return sent.block.offset() == mark.offset(); });
    if (at != sent_.end()) at->event.hold_back(stream);
    return;
  }
  auto at = opened_.find(record.handle);
  if (at == opened_.end()) {
    if (opened_.size() >= kMostOpened) opened_.clear();
    try {
      at = opened_.emplace(record.handle, Event::open(device, record.handle)).first;
    } catch (const shm::cuda::DriverError&) {
      if (!heap->alive(ProcessSlot::from(record.owner))) return;
      throw;
    }
  }
  if (heap->alive(ProcessSlot::from(record.owner))) at->second.hold_back(stream);
}

Event DeviceEvents::take(const Device& device) {
  auto& idle = idle_[device->index()];
  if (idle.empty()) return Event::create(device);
  Event event = std::move(idle.back());
  idle.pop_back();
  return event;
}

void DeviceEvents::put_back(Event event) {
  idle_[event.device()->index()].push_back(std::move(event));
}

void DeviceEvents::end(Sent sent) {
  device_record(sent.block).word.store(1, std::memory_order_release);
  idle_shared_[sent.event.device()->index()].push_back(std::move(sent.event));
}

void DeviceEvents::collect(std::size_t at_most) {
  for (std::size_t looks = std::min(at_most, sent_.size()); looks > 0; --looks) {
    Sent sent = std::move(sent_.front());
    sent_.pop_front();
    if (is_over(sent.event)) {
      end(std::move(sent));
    } else {
      sent_.push_back(std::move(sent));
    }
  }
}

void DeviceEvents::finish() {
  for (; !sent_.empty(); sent_.pop_front()) {
    if (sent_.front().block.heap()->is_sole_holder(sent_.front().block.offset())) continue;
    try {
      sent_.front().event.wait();
    } catch (const shm::cuda::DriverError&) {
      // The work failed, or the driver is gone.
    }
    device_record(sent_.front().block).word.store(1, std::memory_order_release);
  }
}

}  // namespace shoal::ipc
