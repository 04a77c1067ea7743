#include "shoal/os/socket/stream.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/poll.h"

namespace shoal::os {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& host, int port, int flags = 0) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failure != 0)
    throw UnknownHost(
        fmt::format("find the address of host '{}': {}", host, ::gai_strerror(failure)));
  return Addresses(list);
}

bool is_loopback_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

bool peer_is_gone(int error) {
  return error == EPIPE || error == ECONNRESET || error == ECONNABORTED || error == ECONNREFUSED ||
         error == ENOTCONN || error == ETIMEDOUT || error == EHOSTUNREACH || error == EHOSTDOWN ||
         error == ENETUNREACH || error == ENETDOWN;
}

constexpr std::chrono::milliseconds kLook{200};

Fd connect_to(const addrinfo& address, Deadline deadline, const std::function<void()>& look) {
  Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return {};
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return {};
  while (!poll_one(fd.get(), POLLOUT, std::min(deadline, deadline_after(kLook)))) {
    if (Clock::now() >= deadline) return {};
    if (look) look();
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? std::move(fd) : Fd();
}

Fd listening_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd)
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // after a run that has ended
  return fd;
}

Fd listen_at(const addrinfo& address) {
  Fd fd = listening_socket(address.ai_family);
  const bool listens = fd && ::bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 &&
                       ::listen(fd.get(), SOMAXCONN) == 0;
  return listens ? std::move(fd) : Fd();
}

Fd listen_on(int family, bool loopback, int port) {
  Fd fd = listening_socket(family);
  if (!fd) return {};
  const auto number = htons(static_cast<std::uint16_t>(port));
  int bound = -1;
  if (family == AF_INET6) {
    const int off = 0;  // IPv4 too
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 all{};
    all.sin6_family = AF_INET6;
    all.sin6_port = number;
    bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&all), sizeof all);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = number;
    address.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (bound != 0 || ::listen(fd.get(), SOMAXCONN) != 0) return {};
  return fd;
}

}  // namespace

Stream::Stream(Fd fd) : fd_(std::move(fd)) {
  const int on = 1;  // small messages leave at once
  if (::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    throw SystemError(fmt::format("use descriptor {} as a TCP connection", fd_.get()));
}

std::optional<Stream> Stream::connect(const std::string& host, int port, Deadline deadline,
                                      const std::function<void()>& look) {
  const Addresses addresses = resolve(host, port);
  int left = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) ++left;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next, --left) {
    const Deadline share = deadline == kNoDeadline || left == 1
                               ? deadline
                               : deadline_after(time_left(deadline) / left);
    if (Fd fd = connect_to(*one, share, look); fd) return Stream(std::move(fd));
  }
  return {};
}

StreamOutcome Stream::send_some(std::span<const std::byte> bytes, std::size_t& sent) {
  for (;;) {
    const ssize_t gone = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    sent = gone > 0 ? static_cast<std::size_t>(gone) : 0;
    if (gone >= 0) return StreamOutcome::kDone;
    if (peer_is_gone(errno)) return StreamOutcome::kClosed;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return StreamOutcome::kTimedOut;
    if (errno != EINTR) throw SystemError("send to another host");
  }
}

StreamOutcome Stream::send(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    std::size_t sent = 0;
    const StreamOutcome outcome = send_some(bytes, sent);
    if (outcome == StreamOutcome::kClosed) return outcome;
    bytes = bytes.subspan(sent);
    if (outcome == StreamOutcome::kTimedOut && !poll_one(fd_.get(), POLLOUT, deadline))
      return StreamOutcome::kTimedOut;
  }
  return StreamOutcome::kDone;
}

StreamOutcome Stream::recv_some(std::span<std::byte> bytes, std::size_t& received) {
  for (;;) {
    const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    received = got > 0 ? static_cast<std::size_t>(got) : 0;
    if (got > 0) return StreamOutcome::kDone;
    if (got == 0 || peer_is_gone(errno)) return StreamOutcome::kClosed;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return StreamOutcome::kTimedOut;
    if (errno != EINTR) throw SystemError("receive from another host");
  }
}

StreamOutcome Stream::recv(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    std::size_t received = 0;
    const StreamOutcome outcome = recv_some(bytes, received);
    if (outcome == StreamOutcome::kClosed) return outcome;
    bytes = bytes.subspan(received);
    if (outcome == StreamOutcome::kTimedOut && !poll_one(fd_.get(), POLLIN, deadline))
      return StreamOutcome::kTimedOut;
  }
  return StreamOutcome::kDone;
}

std::string Stream::peer_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw SystemError("ask for the address of another host");
  std::array<char, NI_MAXHOST> name{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, name.data(), name.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0)
    throw Error("another host has an address of an unknown kind");
  return name.data();
}

void Stream::end_sending() noexcept { ::shutdown(fd_.get(), SHUT_WR); }

void Stream::shutdown() noexcept { ::shutdown(fd_.get(), SHUT_RDWR); }

std::optional<StreamListener> StreamListener::bind(bool loopback, int port) {
  Fd fd;
  if (!loopback) fd = listen_on(AF_INET6, loopback, port);
  const bool without_ipv6 = !fd && errno != EADDRINUSE;
  if (loopback || without_ipv6) fd = listen_on(AF_INET, loopback, port);
  if (fd) return StreamListener(std::move(fd));
  if (errno == EADDRINUSE || errno == EACCES) return {};
  throw SystemError(fmt::format("listen on TCP port {}", port));
}

std::optional<StreamListener> StreamListener::bind_host(const std::string& host, int port) {
  const Addresses addresses = resolve(host, port, AI_PASSIVE);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    if (Fd fd = listen_at(*one); fd) return StreamListener(std::move(fd));
    if (errno == EADDRINUSE || errno == EACCES) return {};
  }
  if (errno == EADDRNOTAVAIL)
    throw Error(
        fmt::format("listen on {}: that is no address of this machine; 0.0.0.0 is all that "
                    "it has",
                    host));
  throw SystemError(fmt::format("listen on TCP port {} of {}", port, host));
}

int StreamListener::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw SystemError("ask for the port of a listening socket");
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::optional<Stream> StreamListener::accept(Deadline deadline) {
  for (;;) {
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) return Stream(std::move(fd));
    const bool gone_again = errno == ECONNABORTED || errno == EINTR;
    if (!gone_again && errno != EAGAIN && errno != EWOULDBLOCK)
      throw SystemError("accept a TCP connection");
    if (!gone_again && !poll_one(fd_.get(), POLLIN, deadline)) return {};
  }
}

bool is_loopback(const std::string& host) {
  const Addresses addresses = resolve(host, 0, AI_PASSIVE);  // as bind_host() does: "*" is all
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next)
    if (!is_loopback_address(one->ai_addr)) return false;
  return true;
}

}  // namespace shoal::os
