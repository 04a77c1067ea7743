#include "shoal/ipc/device/device_segments.h"

#include <algorithm>
#include <iterator>

#include "shoal/ipc/device/device_record.h"
#include "shoal/ipc/heap/descriptor_broker.h"

namespace shoal::ipc {
namespace {

/// torch's tensors begin at such addresses, too.
constexpr std::uint64_t kAlignment = 512;
/// The first segment of a device; the next are twice as large each, up to the last one.
constexpr std::uint64_t kFirstSegmentBytes = 2 << 20;
constexpr std::uint64_t kLastSegmentBytes = 64 << 20;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DeviceSegment::DeviceSegment(std::shared_ptr<const shm::cuda::Device> device, std::uint64_t bytes)
    : memory_(shm::cuda::Memory::create(std::move(device), bytes)),
      block_(new_device_record(DeviceKind::kSegment, memory_.device()->uuid())),
      free_{{0, memory_.bytes()}} {
  device_record(block_).bytes = memory_.bytes();
}

DeviceSegment::~DeviceSegment() {
  const bool crossed = device_record(block_).word.load(std::memory_order_relaxed) != 0;
  const Offset offset = block_.offset();
  const std::uint64_t serial = block_.serial();
  const auto heap = block_.heap();
  block_ = {};
  if (crossed && !heap->lives(offset, serial)) look_at_descriptors();
}

std::uint64_t DeviceSegment::take(std::uint64_t bytes) {
  bytes = aligned(bytes);
  const std::lock_guard lock(mutex_);
  const auto at =
      std::ranges::find_if(free_, [&](const auto& entry) { return entry.second >= bytes; });
  if (at == free_.end()) return kNone;
  const auto [offset, there] = *at;
  free_.erase(at);
  if (there > bytes) free_.emplace(offset + bytes, there - bytes);
  return offset;
}

void DeviceSegment::give_back(std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto at = free_.emplace(offset, aligned(bytes)).first;
  if (const auto next = std::next(at);
      next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    free_.erase(at);
  }
}

bool DeviceSegment::is_unused() const {
  const std::lock_guard lock(mutex_);
  return free_.size() == 1 && free_.begin()->second == memory_.bytes();
}

std::shared_ptr<DeviceRange> DeviceSegments::allocate(
    const std::shared_ptr<const shm::cuda::Device>& device, std::uint64_t bytes) {
  std::uint64_t fresh = kFirstSegmentBytes;
  for (const auto& segment : segments_) {
    if (segment->memory().device()->index() != device->index()) continue;
    const std::uint64_t offset = segment->take(bytes);
    if (offset != DeviceSegment::kNone) {
      return std::make_shared<DeviceRange>(segment, offset, bytes);
    }
    fresh = std::min(kLastSegmentBytes, std::max(fresh, 2 * segment->memory().bytes()));
  }
  trim();
  auto segment = std::make_shared<DeviceSegment>(device, std::max(fresh, aligned(bytes)));
  auto range = std::make_shared<DeviceRange>(segment, segment->take(bytes), bytes);
  segments_.push_back(std::move(segment));
  return range;
}

void DeviceSegments::trim() {
  std::erase_if(segments_, [](const auto& segment) { return segment->is_unused(); });
}

}  // namespace shoal::ipc
