#include "shoal/learn/checkpoint/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/fd.h"

namespace shoal::learn {
namespace {

namespace fs = std::filesystem;

/// A descriptor with its file's name for errors.
class File {
 public:
  File(const fs::path& path, int flags) : path_(path) {
    fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (fd_ < 0) fail("open");
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[noreturn]] void fail(const char* verb) const {
    throw SystemError(fmt::format("{} {}", verb, path_.string()));
  }

  std::size_t size() const {
    struct stat status{};
    if (::fstat(fd_, &status) != 0) fail("stat");
    if (S_ISDIR(status.st_mode)) throw SystemError("read " + path_.string(), EISDIR);
    return static_cast<std::size_t>(status.st_size);
  }

  std::vector<std::byte> read_all() {
    std::vector<std::byte> bytes(size());
    std::size_t done = 0;
    while (done < bytes.size()) {
      const auto n = ::read(fd_, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("read");
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    bytes.resize(done);
    return bytes;
  }

  void write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("write");
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void sync() {
    if (::fsync(fd_) != 0) fail("sync");
  }

  /// Errors of a delayed write may only show here.
  void close() {
    if (::close(std::exchange(fd_, -1)) != 0) fail("close");
  }

 private:
  fs::path path_;
  int fd_ = -1;
};

fs::path parent_of(const fs::path& path) {
  const auto parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

void sync_directory(const fs::path& path) { File(path, O_RDONLY | O_DIRECTORY).sync(); }

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw SystemError(fmt::format("rename {} to {}", from.string(), to.string()));
}

fs::path old_name(const fs::path& path) { return path.string() + ".old"; }

void throw_if(const std::error_code& error, const char* verb, const fs::path& path) {
  if (error) throw SystemError(fmt::format("{} {}", verb, path.string()), error.value());
}

/// Whether this directory is the one at `path`.
bool is_at(const os::Fd& directory, const fs::path& path) {
  struct stat opened{}, found{};
  return ::fstat(directory.get(), &opened) == 0 && ::stat(path.c_str(), &found) == 0 &&
         opened.st_dev == found.st_dev && opened.st_ino == found.st_ino;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  throw_if(error, "remove", path);
}

void remove_leftovers(const fs::path& path) {
  const auto prefix = path.filename().string() + ".tmp-";
  std::error_code error;
  fs::directory_iterator entries(parent_of(path), error);
  throw_if(error, "list", parent_of(path));
  for (const auto& entry : entries)
    if (entry.path().filename().string().starts_with(prefix)) remove_tree(entry.path());
}

void exchange(const fs::path& fresh, const fs::path& path) {
  if (!fs::exists(path)) return rename_or_throw(fresh, path);
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS)
    throw SystemError(fmt::format("exchange {} and {}", fresh.string(), path.string()));
  remove_tree(old_name(path));
  rename_or_throw(path, old_name(path));
  rename_or_throw(fresh, path);
}

}  // namespace

std::vector<std::byte> read_file(const fs::path& path) { return File(path, O_RDONLY).read_all(); }

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  write_file(path, std::span(&bytes, 1));
}

void write_file(const fs::path& path, std::span<const std::span<const std::byte>> pieces) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (const auto& piece : pieces) file.write_all(piece);
  file.sync();
  file.close();
}

void replace_file(const fs::path& path, std::span<const std::byte> bytes) {
  const fs::path fresh = fmt::format("{}.tmp-{}", path.string(), ::getpid());
  write_file(fresh, bytes);
  rename_or_throw(fresh, path);
  sync_directory(parent_of(path));
}

void replace_file(const fs::path& path, const std::string& text) {
  replace_file(path, std::as_bytes(std::span(text)));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return;
  make_directories(path.parent_path());
  fs::create_directory(path, error);
  throw_if(error, "make the directory", path);
  sync_directory(parent_of(path));
}

void replace_directory(const fs::path& path, const std::function<void(const fs::path&)>& fill) {
  std::error_code error;
  make_directories(parent_of(path));
  remove_leftovers(path);
  const fs::path fresh = fmt::format("{}.tmp-{}", path.string(), ::getpid());
  try {
    fs::create_directory(fresh, error);
    throw_if(error, "make the directory", fresh);
    fill(fresh);
    sync_directory(fresh);
    exchange(fresh, path);
  } catch (...) {
    fs::remove_all(fresh, error);
    throw;
  }
  sync_directory(parent_of(path));
  remove_tree(fresh);
  remove_tree(old_name(path));
}

fs::path find_directory(const fs::path& path) {
  return !fs::exists(path) && fs::exists(old_name(path)) ? old_name(path) : path;
}

void read_directory(const fs::path& path, const std::function<void(const fs::path&)>& read) {
  constexpr int kMostReads = 100;  // of one that somebody replaces all the time
  for (int reads = 1;; ++reads) {
    const fs::path directory = find_directory(path);
    // While it is open no other has its number.
    const os::Fd opened(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    try {
      return read(directory);
    } catch (const Error&) {
      const bool stays = find_directory(path) == directory &&
                         (opened ? is_at(opened, directory) : !fs::exists(directory));
      if (reads == kMostReads || stays) throw;
    }
  }
}

}  // namespace shoal::learn
