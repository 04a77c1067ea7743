#include "shoal/serve/address.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "shoal/os/error.h"
#include "shoal/serve/errors.h"

namespace shoal::serve {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to its limit

struct AbstractName {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

AbstractName abstract(const std::string& name) {
  AbstractName made;
  made.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof made.address.sun_path) {
    throw InvalidArgument(fmt::format("'{}' is no address of a model service", name));
  }
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());  // after a zero byte
  made.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

os::Fd packet_socket(int flags) {
  os::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket) throw SystemError("make a socket for a model service");
  return socket;
}

}  // namespace

std::string fresh_address() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) {
    throw SystemError("get random bytes for the address of a model service");
  }
  return fmt::format("{}{}-{:016x}", kAddressPrefix, ::getpid(), random);
}

os::Fd listen_at(const std::string& address) {
  const AbstractName name = abstract(address);
  os::Fd socket = packet_socket(SOCK_NONBLOCK);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    throw SystemError(fmt::format("listen at the address {} of a model service", address));
  }
  return socket;
}

os::Fd accept_from(const os::Fd& listener) {
  return os::Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

os::SeqPacket connect_to(const std::string& address) {
  const AbstractName name = abstract(address);
  os::Fd socket = packet_socket(0);
  int result;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == ECONNREFUSED || errno == ECONNRESET)) {
    throw ServiceDied(
        "the model service is closed, or the process that made it has ended: nobody answers at " +
        address);
  }
  if (result != 0) throw SystemError("connect to the model service at " + address);
  return os::SeqPacket(std::move(socket));
}

pid_t peer_of(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    throw SystemError("ask who connected to the model service");
  }
  return peer.pid;
}

}  // namespace shoal::serve
