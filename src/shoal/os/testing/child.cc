#include "shoal/os/testing/child.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "shoal/os/error.h"

namespace shoal::os::testing {
namespace {

namespace fs = std::filesystem;

/// The state letter of /proc/<pid>, or of one of its tasks: "12 (name) S …" in its `stat`.
char state_of(const fs::path& process) {
  std::ifstream file(process / "stat");
  std::string line;
  std::getline(file, line);
  const auto end_of_name = line.rfind(')');
  return end_of_name == std::string::npos || line.size() < end_of_name + 3 ? 'X'
                                                                           : line[end_of_name + 2];
}

fs::path folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

[[noreturn]] void run(const std::function<int()>& body) {
  int code = 255;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child process: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

Child::Child(const std::function<int()>& body) {
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw SystemError("fork a test's child");
  if (pid_ == 0) run(body);
  pidfd_ = PidFd::open(pid_);
}

Child::~Child() { kill(); }

bool Child::wait_until_asleep() const {
  for (const Deadline deadline = test_deadline(); Clock::now() < deadline; ::sched_yield()) {
    const char state = state_of(folder_of(pid_));
    if (state == 'S') return true;
    if (state == 'Z' || state == 'X') return false;
  }
  return false;
}

std::optional<ProcessEnd> Child::join() {
  if (!end_ && pidfd_.wait(test_deadline())) end_ = pidfd_.reap();
  return end_;
}

void Child::kill() {
  if (end_) return;
  pidfd_.send_signal(SIGKILL);
  join();
}

bool stop(pid_t pid) {
  if (::kill(pid, SIGSTOP) != 0) return false;
  for (const Deadline deadline = test_deadline(); Clock::now() < deadline; ::sched_yield()) {
    bool stopped = true;
    std::error_code ended;
    for (const auto& task : fs::directory_iterator(folder_of(pid) / "task", ended))
      stopped = stopped && state_of(task.path()) == 'T';
    if (ended) return false;
    if (stopped) return true;
  }
  return false;
}

}  // namespace shoal::os::testing
