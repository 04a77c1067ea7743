// A wake-up that poll() can wait for and that a process sends without holding the descriptor.
//
// A datagram socket with an abstract name, which the kernel forgets with its last descriptor: who
// knows the name wakes it. (Names belong to a network namespace: both sides have to be in one.) A
// stranger who reads the names in /proc/net/unix can wake it too: a wake-up says "look", no more.
#pragma once

#include <array>
#include <cstdint>

#include "shoal/os/fd.h"

namespace shoal::os {

/// The name of a wake socket, drawn at random; a value of fixed width for shared memory.
struct WakeName {
  std::array<std::uint64_t, 2> bits{};
  bool operator==(const WakeName&) const = default;
};

/// What is woken; a resource.
/// Fork: the child holds the same socket and should drop it.
class WakeSocket {
 public:
  WakeSocket() noexcept = default;
  /// Throws SystemError.
  static WakeSocket create();

  /// Whether a socket of this name is open anywhere; does not wake it. Throws SystemError.
  static bool exists(const WakeName& name);

  /// Makes fd() unreadable; returns whether it was readable. Never blocks.
  bool clear() noexcept;

  const WakeName& name() const noexcept { return name_; }
  /// Readable from a wake() on until clear().
  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  Fd fd_;
  WakeName name_;
};

/// What wakes; a resource.
///
/// Threads: any.
/// Fork: parent and child may use the same.
class Waker {
 public:
  Waker() noexcept = default;
  /// Throws SystemError.
  static Waker create();

  /// False when there is no such socket (any more). Never blocks.
  bool wake(const WakeName& name) const noexcept;

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  Fd fd_;
};

}  // namespace shoal::os
