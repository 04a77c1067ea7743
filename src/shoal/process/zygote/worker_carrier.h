// The worker's end of a channel through the parent's channel multiplexer.
#pragma once

#include <cstdint>

#include "shoal/os/socket/mailbox.h"
#include "shoal/os/socket/socket.h"
#include "shoal/process/channel.h"
#include "shoal/process/zygote/credit_cells.h"

namespace shoal::process {

/// Receives from a mailbox of its own, and sends into the socket that all workers of a zygote
/// share; a resource.
///
/// Threads: as Channel.
/// Processes: the worker's.
/// Death: of the parent: the shared socket hangs up.
class WorkerCarrier final : public Channel::Carrier {
 public:
  /// `up` is this process's own descriptor of the shared socket; `cell` outlives this.
  WorkerCarrier(os::Mailbox mailbox, os::SeqPacket up, CreditCell& cell, std::uint64_t request);
  ~WorkerCarrier() override { shutdown(); }

  os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                       os::Deadline deadline) override;
  os::RecvOutcome recv(os::Message& message, os::Deadline deadline) override;
  bool hung_up() const override;
  void shutdown() noexcept override;

 private:
  void wait_for_room(os::Deadline deadline);

  os::Mailbox mailbox_;
  os::SeqPacket up_;
  os::Fd room_;  // an epoll instance; opened when it is needed
  CreditCell& cell_;
  const std::uint64_t request_;
  Credit credit_;
  bool parent_closed_ = false;
  bool closed_ = false;
};

}  // namespace shoal::process
