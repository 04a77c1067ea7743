// A segment of memory that a process makes and hands to others.
//
// The bytes of its memfd:
//
//   offset  bytes  field
//        0      8  magic      "SHOALARN"
//        8      4  version    kArenaVersion
//       12      4  header     bytes before base(): 4096
//       16      8  data       bytes from base() on, as asked for
//       24     40  name       zero-terminated, cut to fit
//       64   4032  zero
//     4096   data  what base() points to, zeroed at first
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "shoal/os/error.h"
#include "shoal/os/fd.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/os/memory/memfd.h"

namespace shoal::shm {

inline constexpr std::uint32_t kArenaVersion = 1;
inline constexpr std::size_t kArenaHeaderBytes = 4096;

struct ArenaHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t data_bytes;
  char name[40];
};
static_assert(sizeof(ArenaHeader) == 64 && std::is_trivially_copyable_v<ArenaHeader>);

/// A mapped segment; a resource.
///
/// Threads: at() and base() from any.
/// Processes: each maps at its own address, so what lies inside refers to other places by offset.
/// Invariants: every byte is backed by memory and the size is sealed, so that no access inside
/// size() raises SIGBUS.
/// Death: the kernel frees the memory when the last holder is gone.
/// Fork: the child shares the memory.
class Arena {
 public:
  Arena() noexcept = default;

  /// Throws InvalidArgument for 0 bytes; SystemError, naming the arena and the size, when memory is
  /// short.
  static Arena create(const std::string& name, std::size_t bytes);

  /// Maps an arena that another process made. Throws Error when the descriptor is not one, or of
  /// another version.
  static Arena attach(os::Fd fd);

  /// 4096-byte aligned.
  std::byte* base() const noexcept { return mapping_.data() + kArenaHeaderBytes; }
  std::size_t size() const noexcept { return mapping_.size() - kArenaHeaderBytes; }
  const std::string& name() const noexcept { return name_; }

  /// To send to another process; valid until close_fd().
  int fd() const noexcept { return memfd_.fd(); }
  /// Gives the descriptor back when nobody is left to be sent it; the mapping stays.
  void close_fd() noexcept { memfd_ = os::Memfd(); }
  explicit operator bool() const noexcept { return static_cast<bool>(mapping_); }

  /// `count` objects of T at `offset` from base(). An offset outside is a bug and aborts.
  template <class T>
  T* at(std::size_t offset, std::size_t count = 1) const {
    static_assert(std::is_standard_layout_v<T> && std::is_trivially_destructible_v<T>,
                  "shared memory holds plain data only");
    SHOAL_CHECK(
        offset % alignof(T) == 0 && offset <= size() && count <= (size() - offset) / sizeof(T),
        "an offset outside its arena");
    return reinterpret_cast<T*>(base() + offset);
  }

 private:
  Arena(os::Memfd memfd, os::Mapping mapping, std::string name) noexcept
      : memfd_(std::move(memfd)), mapping_(std::move(mapping)), name_(std::move(name)) {}

  os::Memfd memfd_;
  os::Mapping mapping_;
  std::string name_;
};

}  // namespace shoal::shm
