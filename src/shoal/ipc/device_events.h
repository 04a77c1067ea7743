// Points in streams that cross to other processes, and those that releases wait for.
//
// Threads: one at a time.
// Death: an event of a dead process holds nobody back: its work has ended with it. Invariant: an
// event is recorded again only when its work is done, and whoever asks for it then is told that it
// is over.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "shoal/ipc/block.h"
#include "shoal/shm/cuda/event.h"

namespace shoal::ipc {

class DeviceEvents {
 public:
  using Device = std::shared_ptr<const shm::cuda::Device>;
  using Stream = shm::cuda::abi::Stream;

  /// The work that is queued on the stream now, for a message; an empty block when all of it is
  /// done already. Does not wait, unless kMost are under way. Throws DriverError, OutOfMemory.
  static constexpr std::size_t kMost = 1000;
  Block mark(const Device& device, Stream stream);

  /// What is queued on the stream from now on begins after the mark. Throws DriverError.
  void await(const Block& mark, const Device& device, Stream stream);

  /// An event of this process, and back.
  shm::cuda::Event take(const Device& device);
  void put_back(shm::cuda::Event event);

  /// Looks which marks are over.
  void collect(std::size_t at_most);

  /// Waits on the host until all are.
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
