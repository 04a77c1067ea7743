#include "shoal/os/socket/wake_socket.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "shoal/os/error.h"
#include "shoal/os/socket/packet.h"

namespace shoal::os {
namespace {

PacketAddress address_of(const WakeName& name) noexcept {
  static constexpr char kPrefix[] = "\0shoal-wake-";  // the 0 first: abstract
  static constexpr std::size_t kPrefixBytes = sizeof kPrefix - 1;
  static constexpr char kDigits[] = "0123456789abcdef";
  PacketAddress address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path, kPrefix, kPrefixBytes);
  char* out = address.name.sun_path + kPrefixBytes;
  for (const std::uint64_t bits : name.bits) {
    for (int shift = 60; shift >= 0; shift -= 4) *out++ = kDigits[bits >> shift & 0xf];
  }
  address.bytes = static_cast<socklen_t>(out - reinterpret_cast<char*>(&address.name));
  return address;
}

Fd datagram_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw SystemError("create a socket for wake-ups (a Unix datagram socket)");
  return fd;
}

}  // namespace

WakeSocket WakeSocket::create() {
  WakeSocket socket;
  socket.fd_ = datagram_socket();
  if (::getrandom(&socket.name_.bits, sizeof socket.name_.bits, 0) !=
      static_cast<ssize_t>(sizeof socket.name_.bits)) {
    throw SystemError("get random bytes for the name of a socket");
  }
  const PacketAddress address = address_of(socket.name_);
  if (::bind(socket.fd_.get(), address.pointer(), address.bytes) != 0) {
    throw SystemError("name a socket for wake-ups");
  }
  return socket;
}

bool WakeSocket::exists(const WakeName& name) {
  const Fd probe = datagram_socket();
  const PacketAddress address = address_of(name);
  return ::connect(probe.get(), address.pointer(), address.bytes) == 0 || errno != ECONNREFUSED;
}

bool WakeSocket::clear() noexcept {
  char byte;
  bool readable = false;
  while (::recv(fd_.get(), &byte, sizeof byte, MSG_DONTWAIT) >= 0 || errno == EINTR) {
    readable = true;
  }
  return readable;
}

Waker Waker::create() {
  Waker waker;
  waker.fd_ = datagram_socket();
  return waker;
}

bool Waker::wake(const WakeName& name) const noexcept {
  const PacketAddress address = address_of(name);
  const char byte = 0;
  for (;;) {
    const ssize_t sent = ::sendto(fd_.get(), &byte, sizeof byte, MSG_DONTWAIT | MSG_NOSIGNAL,
                                  address.pointer(), address.bytes);
    if (sent >= 0 || errno == EAGAIN) return true;  // EAGAIN: full, so it is readable
    if (errno != EINTR) return false;
  }
}

}  // namespace shoal::os
