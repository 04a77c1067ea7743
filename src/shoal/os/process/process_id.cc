#include "shoal/os/process/process_id.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace shoal::os {
namespace {

struct Stat {
  char state = '?';
  unsigned long long threads = 0;
  unsigned long long start_time = 0;
  unsigned long long start_stack = 0;  // random for each exec; 0 where we may not see it
};

enum class Look { kFound, kGone, kHidden };

/// Of /proc/PID/stat: fields 3, 20, 22 and 28, which follow the name in its parentheses.
Look look_at(pid_t pid, Stat& found) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(pid));
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT || errno == ESRCH ? Look::kGone : Look::kHidden;
  std::array<char, 1024> text{};
  const ssize_t count = ::read(file, text.data(), text.size() - 1);
  const int error = errno;
  ::close(file);
  if (count <= 0) return count < 0 && error == ESRCH ? Look::kGone : Look::kHidden;
  const char* rest = std::strrchr(text.data(), ')');
  if (rest == nullptr || rest[1] == '\0') return Look::kHidden;
  found.state = rest[2];
  const char* field = rest + 2;
  for (int number = 4; number <= 28; ++number) {
    field = std::strchr(field, ' ');
    if (field == nullptr) return Look::kHidden;
    ++field;
    if (number == 20) found.threads = std::strtoull(field, nullptr, 10);
    if (number == 22) found.start_time = std::strtoull(field, nullptr, 10);
    if (number == 28) found.start_stack = std::strtoull(field, nullptr, 10);
  }
  return Look::kFound;
}

}  // namespace

ProcessId this_process() noexcept {
  Stat stat;
  const pid_t pid = ::getpid();
  static_cast<void>(look_at(pid, stat));
  return {pid, stat.start_time, stat.start_stack};
}

bool is_running(const ProcessId& process) noexcept {
  if (process.pid <= 0) return false;
  if (::kill(process.pid, 0) != 0 && errno == ESRCH) return false;
  Stat stat;
  const Look look = look_at(process.pid, stat);
  if (look == Look::kGone) return false;
  if (look == Look::kHidden) return true;
  if (process.start_time != 0 && stat.start_time != process.start_time) return false;
  if (process.image != 0 && stat.start_stack != 0 && stat.start_stack != process.image)
    return false;
  // The first thread may end before the others: that is no end of the process.
  const bool ended = stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
  return !ended;
}

}  // namespace shoal::os
