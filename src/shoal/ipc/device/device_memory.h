// Memory of CUDA devices that the family shares, as one process has it.
//
// A block of the heap stands for the memory, and a message names the block, as it does for memory
// of the CPU. Whoever holds the block may use the memory, and may send it on. Memory that this
// process gave (torch's allocator made it, or a segment of Shoal's) is kept until nobody else holds
// its block, whether the holder released it or was killed. Memory that this process received is
// mapped once, and unmapped when the work that was queued before the release is done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "shoal/ipc/device/device_events.h"
#include "shoal/ipc/device/device_segments.h"
#include "shoal/ipc/heap/block.h"
#include "shoal/shm/cuda/ipc_memory.h"
#include "shoal/shm/cuda/memory.h"

namespace shoal::ipc {

/// The process that gave the memory has ended, and the memory with it.
class MemoryGone : public Error {
 public:
  using Error::Error;
};

/// Memory of a device as this process may use it; a copy holds it once more. To be given back with
/// DeviceMemory::release() where work on a stream may still use it.
struct DeviceView {
  Block record;
  std::shared_ptr<const shm::cuda::Device> device;
  shm::cuda::abi::Address address = 0;
  std::uint64_t bytes = 0;
  // What keeps the address mapped: one of them, or none for what torch's allocator here made.
  std::shared_ptr<const shm::cuda::Memory> segment;
  std::shared_ptr<const shm::cuda::IpcMemory> foreign;
};

struct DeviceMemoryStats {
  std::uint64_t given = 0;      // kept for others, or for storages of this process
  std::uint64_t left = 0;       // of them, those of which this process has no storage
  std::uint64_t releasing = 0;  // let go, once work on streams is done
  std::uint64_t mapped = 0;     // of other processes
  std::uint64_t segments = 0;
  std::uint64_t marks = 0;  // sent, and work on them is not done
};

/// This process's part in the device memory of the family; a resource, one a process.
///
/// Threads: any.
/// Processes: each has its own; blocks of the heap cross between them.
/// Death: of the process that gave memory: a segment's memory lives on. What torch's allocator made
/// cannot be received any more, and whoever has it mapped must not rely on it.
/// Fork: a child must not use it, and leaves what it has of its parent alone.
class DeviceMemory {
 public:
  using Device = std::shared_ptr<const shm::cuda::Device>;
  using Stream = shm::cuda::abi::Stream;
  using Address = shm::cuda::abi::Address;

  static DeviceMemory& here();

  /// Throws NoDriver, DriverError, InvalidArgument.
  Device device(int index);

  /// Makes memory that `keep` keeps alive into memory that others can receive; `keep` is dropped
  /// when nobody holds the memory any more. Throws InvalidArgument for memory that cannot cross,
  /// DriverError.
  DeviceView give(int device, Address address, std::uint64_t bytes, std::shared_ptr<void> keep);

  /// Memory of a segment, not initialised; `bytes` > 0. Throws DriverError, OutOfMemory.
  DeviceView allocate(int device, std::uint64_t bytes);

  /// The memory that a record stands for. Throws MemoryGone, DriverError, and Error where this
  /// process does not see the device.
  DeviceView open(Block record);

  /// To be called before a message names the view, on the stream that wrote it. Returns the mark
  /// for await(): a block that the message holds, too, or an empty one. Throws InvalidState while
  /// the stream records a graph.
  Block mark(const DeviceView& view, Stream stream);
  void await(const Block& mark, const DeviceView& view, Stream stream);

  /// Gives a view back: others may have its memory when the work that is on the stream now is done.
  /// Does not wait.
  void release(DeviceView view, Stream stream) noexcept;

  /// Frees what nobody holds any more and whose work is done. Not to be called with the GIL.
  void collect() noexcept;

  /// Before this process ends: waits for the work whose results are on their way, and ends the
  /// thread.
  void finish() noexcept;

  DeviceMemoryStats stats();

 private:
  using Key = std::pair<Offset, std::uint64_t>;  // a block and its serial
  struct Given {
    DeviceView view;
    std::shared_ptr<void> keep;
  };
  struct Releasing {
    DeviceView view;
    Stream stream;
    std::optional<shm::cuda::Event> event;  // none yet: the stream was recording a graph
  };
  using Garbage = std::vector<std::shared_ptr<void>>;

  Device device_locked(int index);
  int index_of(const shm::cuda::abi::Uuid& uuid);
  void leave_at_broker(const DeviceView& view);
  std::shared_ptr<const shm::cuda::Memory> segment_of(const DeviceView& view, Key segment);
  std::shared_ptr<const shm::cuda::IpcMemory> foreign_of(const DeviceView& view);
  bool is_over(Releasing& releasing);
  void let_go(DeviceView view, Garbage& garbage);
  bool drop_given(Key key, Garbage& garbage);
  void step(std::size_t at_most, Garbage& garbage);
  void watch();
  void look_until_all_is_over() noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;  // the next three
  bool watched_ = false;             // the thread is there
  bool finished_ = false;            // and shall not be there any more
  bool clearing_ = false;            // and frees what it found
  std::map<int, Device> devices_;
  DeviceEvents events_;
  DeviceSegments segments_;
  std::map<Key, Given> given_;
  std::deque<Key> left_;
  std::deque<Releasing> releasing_;
  std::map<Key, std::weak_ptr<const shm::cuda::Memory>> imported_;
  std::map<shm::cuda::abi::IpcHandle, std::weak_ptr<const shm::cuda::IpcMemory>> opened_;
};

}  // namespace shoal::ipc
