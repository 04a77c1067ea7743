// The order in which ports are leased: the one that was in use longest ago first.
//
//   offset      bytes  field
//        0          4  magic  "SLEA"
//        4          4  start  where this program begins among ports never used
//        8          4  clock  leases and releases so far
//       12         52  zero
//       64   4 * 65536 when each port was leased or released last, by that clock; 0: never
//
// This is about the order alone. The kernel knows who holds a port (port_lease.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/shm/arena.h"

namespace shoal::process {

/// One for a program and all the workers below it; a resource.
///
/// Threads and processes: any.
/// Memory ordering: relaxed; a stale time costs a worse order, nothing else.
/// Death: on any line; at most one port is out of order.
/// Fork: the child has the same order.
class PortOrder {
 public:
  static constexpr std::size_t kPorts = 65536;

  static std::shared_ptr<PortOrder> create();
  /// Maps what another process made. Throws Error when it is something else.
  static std::shared_ptr<PortOrder> attach(os::Fd fd);

  /// This process's: the one it was given as a worker, or else one of its own.
  static std::shared_ptr<PortOrder> of_this_process();
  /// For a worker, before it leases a port.
  static void set_of_this_process(std::shared_ptr<PortOrder> order);

  /// [first, last], in the order in which they are to be tried.
  std::vector<int> ports(int first, int last) const;
  /// The port is in use now, or was until now.
  void touch(int port) noexcept;

  int fd() const noexcept { return arena_.fd(); }

 private:
  struct alignas(64) Header {
    std::uint32_t magic;
    std::uint32_t start;
    std::atomic<std::uint32_t> clock;
  };
  static_assert(sizeof(Header) == 64);

  explicit PortOrder(shm::Arena arena);

  shm::Arena arena_;
  Header* header_;
  std::span<std::atomic<std::uint32_t>> touched_;
};

}  // namespace shoal::process
