#include "shoal/os/memory/mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shoal/os/error.h"

namespace shoal::os {

Mapping Mapping::map(const Memfd& memfd, const std::string& name, Access access) {
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, memfd.bytes(), protection, MAP_SHARED, memfd.fd(), 0);
  if (data == MAP_FAILED) {
    throw SystemError(fmt::format("map the {} bytes of \"{}\"", memfd.bytes(), name));
  }
  return Mapping(static_cast<std::byte*>(data), memfd.bytes());
}

Mapping Mapping::of_this_process(std::size_t bytes, const std::string& name) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw SystemError(fmt::format("get the {} bytes of \"{}\"", bytes, name));
  return Mapping(static_cast<std::byte*>(data), bytes);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::size_t page_size() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace shoal::os
