#include "shoal/process/supervise/orphans.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "shoal/os/error.h"
#include "shoal/os/process/pidfd.h"

namespace shoal::process {
namespace {

namespace fs = std::filesystem;

struct Status {
  pid_t parent = -1;
  pid_t session = -1;
};

/// The fields of /proc/pid/stat behind the name, which is in parentheses and may contain anything.
Status status_of(const fs::path& process) {
  std::ifstream file(process / "stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  Status status;
  char state = '?';
  pid_t group = -1;
  fields >> state >> status.parent >> group >> status.session;
  return fields ? status : Status{};
}

template <class Visit>
void for_each_process(Visit visit) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = -1;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed == std::errc() && end == name.data() + name.size()) visit(pid, entry.path());
  }
}

}  // namespace

void lead_own_session() noexcept {
  static_cast<void>(::setsid());  // fails for a process that leads its group: as good
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void adopt_orphans() noexcept { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  std::error_code error;
  bool known = false;
  for (const auto& task : fs::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "children");
    known = known || file.is_open();
    for (pid_t pid = 0; file >> pid;) children.push_back(pid);
  }
  if (known) return children;
  for_each_process([&](pid_t pid, const fs::path& path) {  // a kernel without CONFIG_PROC_CHILDREN
    if (status_of(path).parent == ::getpid()) children.push_back(pid);
  });
  return children;
}

void end_sessions(const std::vector<pid_t>& sessions) {
  if (sessions.empty()) return;
  const auto wanted = [&](const fs::path& path) {
    const pid_t session = status_of(path).session;
    return session > 0 && std::ranges::find(sessions, session) != sessions.end();
  };
  for_each_process([&](pid_t pid, const fs::path& path) {
    if (pid == ::getpid() || !wanted(path)) return;
    try {
      const os::PidFd process = os::PidFd::open(pid);
      if (wanted(path)) static_cast<void>(process.send_signal(SIGKILL));  // still the same process
    } catch (const Error&) {
      // It has ended.
    }
  });
}

}  // namespace shoal::process
