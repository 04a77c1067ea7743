#include "shoal/os/testing/child.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "shoal/os/error.h"

namespace shoal::os::testing {
namespace {

/// The state letter of /proc/<pid>/stat: "12 (name) S …".
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto end_of_name = line.rfind(')');
  return end_of_name == std::string::npos || line.size() < end_of_name + 3 ? 'X'
                                                                           : line[end_of_name + 2];
}

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
    const char state = state_of(pid_);
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

}  // namespace shoal::os::testing
