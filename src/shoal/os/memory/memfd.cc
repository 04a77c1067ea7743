#include "shoal/os/memory/memfd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "shoal/os/error.h"
#include "shoal/os/limits/limits.h"

namespace shoal::os {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kMaxNameBytes = 249;  // of memfd_create(2)

/// Below this a look at free memory costs more than the allocation.
constexpr std::size_t kWorthALook = 1 << 20;

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned kNoExecSeal = 0x0008u;
#else
constexpr unsigned kNoExecSeal = MFD_NOEXEC_SEAL;
#endif

Fd create_file(const std::string& name, std::size_t bytes) {
  open_standard_streams();
  const std::string shortened = name.substr(0, kMaxNameBytes);
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Kernels before 6.3 do not know the flag; some newer ones refuse files that could be executed.
  int fd = ::memfd_create(shortened.c_str(), kFlags | kNoExecSeal);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(shortened.c_str(), kFlags);
  if (fd < 0)
    throw SystemError(fmt::format("create the memory file \"{}\" of {} bytes", name, bytes));
  return Fd(fd);
}

void check_file_size(const std::string& attempt, std::size_t bytes) {
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    throw SystemError(attempt + " (larger than any file)", EFBIG);
  }
  if (const std::uint64_t limit = max_file_bytes(); bytes > limit) {
    throw SystemError(fmt::format("{} (ulimit -f allows {} bytes)", attempt, limit), EFBIG);
  }
}

/// Looks at free memory first: short of it, the kernel would kill some process rather than refuse.
void check_room(const std::string& name, std::size_t bytes) {
  const auto attempt = fmt::format("allocate {} bytes of shared memory for \"{}\"", bytes, name);
  check_file_size(attempt, bytes);
  if (bytes < kWorthALook) return;
  if (const MemoryLimit limit = available_memory(); bytes > limit.bytes) {
    throw SystemError(fmt::format("{} ({} leaves {} bytes; use fewer environments, smaller "
                                  "observations, a smaller replay (buffer_size) or a smaller "
                                  "max_batch of a model service, or free memory)",
                                  attempt, limit.source, limit.bytes),
                      ENOMEM);
  }
}

int allocate_range(int fd, int mode, std::size_t offset, std::size_t bytes) noexcept {
  int error;
  do {
    error = ::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0
                ? 0
                : errno;
  } while (error == EINTR);
  return error;
}

/// Allocates every page now, so that no later access can fail.
void populate_all(const Fd& fd, const std::string& name, std::size_t bytes) {
  if (const int error = allocate_range(fd.get(), 0, 0, bytes); error != 0) {
    throw SystemError(fmt::format("allocate {} bytes of shared memory for \"{}\"", bytes, name),
                      error);
  }
}

void seal(const Fd& fd, const std::string& name, int seals) {
  if (::fcntl(fd.get(), F_ADD_SEALS, seals) < 0) {
    throw SystemError(fmt::format("seal the memory file \"{}\"", name));
  }
}

}  // namespace

Memfd Memfd::create(const std::string& name, std::size_t bytes) {
  if (bytes == 0) throw InvalidArgument(fmt::format("shared memory \"{}\" of 0 bytes", name));
  check_room(name, bytes);
  Fd fd = create_file(name, bytes);
  populate_all(fd, name, bytes);
  seal(fd, name, kSizeSeals);
  return Memfd(std::move(fd), bytes);
}

Memfd Memfd::create_sparse(const std::string& name, std::size_t bytes) {
  if (bytes == 0) throw InvalidArgument(fmt::format("shared memory \"{}\" of 0 bytes", name));
  const auto attempt = fmt::format("make the sparse memory file \"{}\" of {} bytes", name, bytes);
  check_file_size(attempt, bytes);
  Fd fd = create_file(name, bytes);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) throw SystemError(attempt);
  seal(fd, name, kSizeSeals);
  return Memfd(std::move(fd), bytes);
}

int Memfd::populate(std::size_t offset, std::size_t bytes) const noexcept {
  return allocate_range(fd_.get(), 0, offset, bytes);
}

int Memfd::punch(std::size_t offset, std::size_t bytes) const noexcept {
  return allocate_range(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

Memfd Memfd::create_readonly(const std::string& name, std::span<const std::byte> content) {
  check_room(name, content.size());
  Fd fd = create_file(name, content.size());
  for (std::span<const std::byte> rest = content; !rest.empty();) {
    const ssize_t written = ::write(fd.get(), rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw SystemError(fmt::format("write {} bytes to \"{}\"", rest.size(), name));
    }
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
  seal(fd, name, kSizeSeals | F_SEAL_WRITE);
  return Memfd(std::move(fd), content.size());
}

Memfd Memfd::open(Fd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) {
    throw SystemError(fmt::format("use descriptor {} as shared memory: it is no memfd", fd.get()));
  }
  if ((seals & kSizeSeals) != kSizeSeals) {
    throw Error(fmt::format(
        "cannot use descriptor {} as shared memory: its size is not sealed (seals {:#x}, "
        "wanted {:#x}), so that another process could shrink it under a reader",
        fd.get(), seals, kSizeSeals));
  }
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) {
    throw SystemError(fmt::format("ask for the size of descriptor {}", fd.get()));
  }
  return Memfd(std::move(fd), static_cast<std::size_t>(status.st_size));
}

}  // namespace shoal::os
