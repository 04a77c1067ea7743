#include "shoal/process/supervise/stack_dump.h"

#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/fd.h"

namespace shoal::process {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "shoal stack";
constexpr std::string_view kEnd = "-- end of stack --\n";
constexpr std::chrono::milliseconds kPoll{1};
constexpr std::size_t kMostBytes = 64 * 1024;

int stack_fd = -1;  // read by the handler; set once, before the handler is installed
bool with_native = false;

extern "C" void write_stack(int) {
  const int saved = errno;
  if (with_native) {
    std::array<void*, 64> frames;
    ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), stack_fd);
  }
  if (::write(stack_fd, kEnd.data(), kEnd.size()) < 0) {
    // Nobody to tell.
  }
  errno = saved;
}

/// The stack file of another process, opened through /proc, so that no descriptor of it is kept.
os::Fd open_stack_file(int pid) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), error)) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(entry.path(), ignored).string();
    if (target.starts_with(fmt::format("/memfd:{}", kName))) {
      return os::Fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    }
  }
  return {};
}

std::string read_from(int fd, off_t offset) {
  std::string text;
  std::array<char, 4096> part;
  while (text.size() < kMostBytes) {
    const ssize_t n = ::pread(fd, part.data(), part.size(), offset);
    if (n <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(n));
    offset += n;
  }
  return text;
}

/// The letter of a process's state in /proc/pid/stat.
char state_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const auto end = line.rfind(')');
  return end != std::string::npos && end + 2 < line.size() ? line[end + 2] : '?';
}

std::string silence(WorkerProcess& worker) {
  if (worker.exit_status()) return "(the process ended before it could tell its stack)";
  switch (state_of(worker.pid())) {
    case 'T':
    case 't':
      return "(its stack is not known: the process is stopped)";
    case 'D':
      return "(its stack is not known: the process is in the kernel and takes no signals)";
    default:
      return "(its stack is not known: the process did not answer)";
  }
}

}  // namespace

int stack_signal() noexcept { return SIGRTMAX - 3; }

int install_stack_dump(bool native) noexcept {
  if (stack_fd >= 0) return stack_fd;
  if (::gettid() != ::getpid()) return -1;  // a worker that is a thread of somebody's process
  const int fd = ::memfd_create(kName, MFD_CLOEXEC);
  if (fd < 0) return -1;
  std::array<void*, 1> first;
  static_cast<void>(::backtrace(first.data(), first.size()));  // loads what the handler must not
  stack_fd = fd;
  with_native = native;
  struct sigaction action{};
  action.sa_handler = write_stack;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(stack_signal(), &action, nullptr);
  return stack_fd;
}

std::string ask_for_stack(WorkerProcess& worker, std::chrono::milliseconds timeout) {
  const os::Fd file = open_stack_file(worker.pid());
  if (!file) {
    // Without its handler the signal would end the process.
    return worker.exit_status() ? silence(worker) : "(it has no handler that tells its stack)";
  }
  const off_t start = ::lseek(file.get(), 0, SEEK_END);
  worker.kill(stack_signal());
  const os::Deadline deadline = os::deadline_after(timeout);
  std::string text;
  for (;;) {
    text = read_from(file.get(), start);
    if (text.ends_with(kEnd)) break;
    if (worker.exit_status() || os::Clock::now() >= deadline) {
      return text.empty() ? silence(worker) : text;
    }
    std::this_thread::sleep_for(kPoll);
  }
  text.resize(text.size() - kEnd.size());
  return text;
}

}  // namespace shoal::process
