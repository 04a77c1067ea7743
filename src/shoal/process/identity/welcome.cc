#include "shoal/process/identity/welcome.h"

#include <array>
#include <cstring>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::process {
namespace {

constexpr std::uint32_t kMagic = 0x4c574853;  // "SHWL"

}  // namespace

void send_welcome(WorkerProcess& worker, const SharedState& shared_state, int num_workers) {
  const std::shared_ptr<PortOrder> order = PortOrder::of_this_process();
  const std::array<int, 2> fds{shared_state.fd(), order->fd()};
  ByteWriter message;
  message.number(kMagic);
  message.number(static_cast<std::int32_t>(num_workers));
  static_cast<void>(worker.channel().send(message.take(), fds));
}

os::RecvOutcome recv_past_welcome(Channel& channel, os::Message& message) {
  os::RecvOutcome outcome;
  do {
    outcome = channel.recv(message);
  } while (outcome == os::RecvOutcome::kMessage && is_welcome(message.bytes));
  return outcome;
}

bool is_welcome(std::span<const std::byte> message) noexcept {
  std::uint32_t magic = 0;
  if (message.size() < sizeof magic) return false;
  std::memcpy(&magic, message.data(), sizeof magic);
  return magic == kMagic;
}

std::optional<Identity> receive_welcome(WorkerContext& context) {
  os::Message message;
  if (context.channel.recv(message) != os::RecvOutcome::kMessage) return {};
  if (!is_welcome(message.bytes) || message.fds.size() != 2) {
    throw Error("the first message to " + context.name + " is not the welcome");
  }
  ByteReader reader(message.bytes);
  reader.number<std::uint32_t>();  // magic
  const Place place{.index = context.index,
                    .num_workers = reader.number<std::int32_t>(),
                    .first_env = context.first_env < 0 ? 0 : context.first_env,
                    .num_envs = context.num_envs,
                    .is_worker = true};
  auto shared_state = SharedState::attach(std::move(message.fds[0]));
  PortOrder::set_of_this_process(PortOrder::attach(std::move(message.fds[1])));
  return Identity(place, std::move(shared_state));
}

}  // namespace shoal::process
