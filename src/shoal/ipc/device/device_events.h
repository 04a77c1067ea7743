// Events of CUDA streams that other processes wait for, and those that releases of memory wait for.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "shoal/ipc/heap/block.h"
#include "shoal/shm/cuda/event.h"

namespace shoal::ipc {

/// The events that this process has recorded for others, and those of others that it has opened; a
/// resource.
///
/// Threads: one at a time.
/// Processes: each has its own; a mark, which is a block of the heap, crosses between them.
/// Invariants: an event is recorded again only when its work is done; whoever asks for it then is
/// told that it is over.
/// Death: an event of a dead process holds nobody back: its work has ended with the process.
/// Fork: a child must not use it.
class DeviceEvents {
 public:
  using Device = std::shared_ptr<const shm::cuda::Device>;
  using Stream = shm::cuda::abi::Stream;

  /// Marks the work that is queued on the stream now, for a message; an empty block when all of it
  /// is done already. Waits only when kMost marks are under way. Throws DriverError, OutOfMemory.
  static constexpr std::size_t kMost = 1000;
  Block mark(const Device& device, Stream stream);

  /// Work that is queued on the stream from now on begins after the mark's. Throws DriverError.
  void await(const Block& mark, const Device& device, Stream stream);

  /// Lends an event of this process, and takes it back.
  shm::cuda::Event take(const Device& device);
  void put_back(shm::cuda::Event event);

  /// Looks which marks are over.
  void collect(std::size_t at_most);

  /// Waits on the host until all are over.
  void finish();

  std::size_t under_way() const noexcept { return sent_.size(); }

 private:
  struct Sent {
    shm::cuda::Event event;
    Block block;
  };
  void end(Sent sent);

  std::map<int, std::vector<shm::cuda::Event>> idle_;         // by device
  std::map<int, std::vector<shm::cuda::Event>> idle_shared_;  // likewise
  std::deque<Sent> sent_;
  std::map<shm::cuda::abi::IpcHandle, shm::cuda::Event> opened_;
};

}  // namespace shoal::ipc
