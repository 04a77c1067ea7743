// Bytes of a file, or of this process alone, in its address space.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "shoal/os/memory/memfd.h"

namespace shoal::os {

/// A mapping; a resource. One of a file stays valid after the descriptor is closed.
///
/// Processes: every process maps a file at its own address.
/// Fork: the child has the mapping at the same address; what is of a file is shared, what is private is a copy.
class Mapping {
 public:
  enum class Access { kReadWrite, kReadOnly };

  Mapping() noexcept = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// Maps all of `memfd`. `name` is for the error. Throws SystemError when the address space has no
  /// room.
  static Mapping map(const Memfd& memfd, const std::string& name,
                     Access access = Access::kReadWrite);

  /// Zeroed memory of this process, in whole pages. `name` is for the error. Throws SystemError when there is no room.
  static Mapping of_this_process(std::size_t bytes, const std::string& name);

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  std::span<std::byte> span() const noexcept { return {data_, bytes_}; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Bytes of a memory page.
std::size_t page_size() noexcept;

}  // namespace shoal::os
