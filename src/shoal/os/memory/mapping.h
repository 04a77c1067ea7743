// Bytes of a file in this process's address space.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "shoal/os/memory/memfd.h"

namespace shoal::os {

/// A shared mapping of a whole file; a resource. It stays valid after the descriptor is closed.
///
/// Processes: every process maps at its own address.
/// Fork: the child has the same mapping at the same address.
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
