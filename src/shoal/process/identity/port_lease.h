// Network ports that no two processes of this machine get at the same time.
//
// The holder of a port holds an abstract Unix socket named "shoal/lease/tcp/20000", which the
// kernel gives to one process at a time and takes back when that process ends, however it ends.
// Such names belong to a network namespace, just as ports do, so leases are kept apart exactly
// where ports are: between workers, vector environments, programs and users. The port itself stays
// free for whoever is to bind it.
#pragma once

#include <memory>

#include "shoal/os/fd.h"
#include "shoal/os/process/making_process.h"
#include "shoal/process/identity/port_order.h"

namespace shoal::process {

enum class PortKind { kTcp, kUdp };

/// Both included.
struct PortRange {
  int first = 0;
  int last = 0;

  /// Below the ports that the kernel gives to outgoing connections: 20000 to 32767, or what is left
  /// of it.
  static PortRange standard();
};

/// A port that is this process's alone until release(); a resource.
///
/// Threads: one at a time.
/// Processes: no other process of this network namespace gets the same port.
/// Death: of this process: the kernel gives the port back.
/// Fork: the lease stays the parent's; the child's copy does nothing.
class PortLease {
 public:
  PortLease() noexcept = default;
  PortLease(PortLease&& other) noexcept;
  PortLease& operator=(PortLease&& other) noexcept;
  ~PortLease() { release(); }

  /// The port of `range` that was in use longest ago, is leased by nobody, and can be bound on all
  /// addresses without SO_REUSEADDR, so that no connection of its last user lingers on it. Throws
  /// InvalidArgument for a range that is none, Error naming the holders when there is no such port.
  static PortLease take(std::shared_ptr<PortOrder> order, PortRange range = PortRange::standard(),
                        PortKind kind = PortKind::kTcp);

  int port() const noexcept { return port_; }
  PortKind kind() const noexcept { return kind_; }
  /// False once it is released, and in a forked child.
  explicit operator bool() const noexcept;

  /// Idempotent.
  void release() noexcept;

 private:
  os::Fd socket_;
  os::MakingProcess maker_;
  std::shared_ptr<PortOrder> order_;
  int port_ = 0;
  PortKind kind_ = PortKind::kTcp;
};

}  // namespace shoal::process
