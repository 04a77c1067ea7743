// Memory of CUDA devices that is shared by descriptor, in segments that are cut into ranges.
//
// Processes: a segment is cut up by the process that made it; others map it whole.
// Death: of the process that made a segment: its ranges live on while others hold them; none is
// used again.
// Fork: a child must not use any of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "shoal/ipc/heap/block.h"
#include "shoal/shm/cuda/memory.h"

namespace shoal::ipc {

/// A segment that this process made; a resource.
/// Threads: any.
class DeviceSegment {
 public:
  /// Throws DriverError, OutOfMemory.
  DeviceSegment(std::shared_ptr<const shm::cuda::Device> device, std::uint64_t bytes);
  ~DeviceSegment();
  DeviceSegment(const DeviceSegment&) = delete;
  DeviceSegment& operator=(const DeviceSegment&) = delete;

  /// The offset of `bytes` bytes that nobody uses, or kNone.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t take(std::uint64_t bytes);
  void give_back(std::uint64_t offset, std::uint64_t bytes);
  bool is_unused() const;

  const shm::cuda::Memory& memory() const noexcept { return memory_; }
  const Block& block() const noexcept { return block_; }

 private:
  shm::cuda::Memory memory_;
  Block block_;  // its DeviceRecord; the others' mappings end with it
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset and bytes; no two touch
};

/// Bytes of a segment; a resource.
/// Threads: one at a time, but its destructor may run in any.
class DeviceRange {
 public:
  DeviceRange(std::shared_ptr<DeviceSegment> segment, std::uint64_t offset, std::uint64_t bytes)
      : segment_(std::move(segment)), offset_(offset), bytes_(bytes) {}
  ~DeviceRange() { segment_->give_back(offset_, bytes_); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

  const std::shared_ptr<DeviceSegment>& segment() const noexcept { return segment_; }
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::shared_ptr<DeviceSegment> segment_;
  std::uint64_t offset_;
  std::uint64_t bytes_;
};

/// The segments that this process made and has room in; a resource.
/// Threads: one at a time.
class DeviceSegments {
 public:
  /// `bytes` > 0. Throws DriverError, OutOfMemory.
  std::shared_ptr<DeviceRange> allocate(const std::shared_ptr<const shm::cuda::Device>& device,
                                        std::uint64_t bytes);

  /// Lets go of segments that nobody uses.
  void trim();

  std::size_t count() const noexcept { return segments_.size(); }

 private:
  std::vector<std::shared_ptr<DeviceSegment>> segments_;
};

}  // namespace shoal::ipc
