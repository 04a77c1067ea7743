#include "shoal/process/channel.h"

#include "shoal/os/poll.h"

namespace shoal::process {
namespace {

class SocketCarrier final : public Channel::Carrier {
 public:
  explicit SocketCarrier(os::SeqPacket socket) : socket_(std::move(socket)) {}

  os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                       os::Deadline deadline) override {
    return socket_.send(bytes, fds, deadline);
  }
  os::RecvOutcome recv(os::Message& message, os::Deadline deadline) override {
    return socket_.recv(message, deadline);
  }
  bool hung_up() const override { return os::poll_one(socket_.fd(), 0, os::Clock::now()); }
  void shutdown() noexcept override { socket_.shutdown(); }

 private:
  os::SeqPacket socket_;
};

}  // namespace

Channel::Channel(os::SeqPacket socket)
    : carrier_(std::make_unique<SocketCarrier>(std::move(socket))) {}

std::pair<Channel, Channel> Channel::pair() {
  auto [first, second] = os::SeqPacket::pair();
  return {Channel(std::move(first)), Channel(std::move(second))};
}

os::SendOutcome Channel::send(std::span<const std::byte> bytes, std::span<const int> fds,
                              os::Deadline deadline) {
  return carrier_ ? carrier_->send(bytes, fds, deadline) : os::SendOutcome::kClosed;
}

os::RecvOutcome Channel::recv(os::Message& message, os::Deadline deadline) {
  if (carrier_) return carrier_->recv(message, deadline);
  message = {};
  return os::RecvOutcome::kClosed;
}

}  // namespace shoal::process
