// Unnamed shared memory: a memfd of fixed size.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "shoal/os/fd.h"

namespace shoal::os {

/// An anonymous file in memory, whose size nobody can change any more; a resource.
///
/// Processes: pass fd() over a SeqPacket; the receiver calls open().
/// Invariants: sealed against shrinking, growing and further sealing. Every page is allocated,
/// unless it was made by create_sparse(), so an access inside bytes() raises no SIGBUS.
/// Death: it has no name in any file system, so nothing is left behind however its holders die.
class Memfd {
 public:
  Memfd() noexcept = default;

  /// A zeroed file of `bytes`, which every holder may write. `name` tells it apart in /proc and in
  /// errors. Throws InvalidArgument for 0 bytes; SystemError(ENOMEM), naming it, the size and the
  /// limit, when memory is short.
  static Memfd create(const std::string& name, std::size_t bytes);

  /// A zeroed file of `bytes` without any memory of its own yet: populate() a range before using
  /// it. Throws as create() does, but for want of memory.
  static Memfd create_sparse(const std::string& name, std::size_t bytes);

  /// Allocates the pages of a range; what is there stays. Returns 0, or the errno of what the
  /// kernel refused. Some 0.1 ms a MiB. Any thread.
  [[nodiscard]] int populate(std::size_t offset, std::size_t bytes) const noexcept;

  /// Gives the whole pages of a range back to the kernel; they read as zeros from now on.
  [[nodiscard]] int punch(std::size_t offset, std::size_t bytes) const noexcept;

  /// A file with this content, which nobody can write any more. Content of 0 bytes is allowed.
  static Memfd create_readonly(const std::string& name, std::span<const std::byte> content);

  /// Takes over a received descriptor after looking at its seals and size. Throws Error, naming
  /// what was wrong.
  static Memfd open(Fd fd);

  int fd() const noexcept { return fd_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  [[nodiscard]] Fd release() noexcept { return std::move(fd_); }

 private:
  Memfd(Fd fd, std::size_t bytes) noexcept : fd_(std::move(fd)), bytes_(bytes) {}

  Fd fd_;
  std::size_t bytes_ = 0;
};

}  // namespace shoal::os
