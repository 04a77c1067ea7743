#include "shoal/os/process/pidfd.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/poll.h"

namespace shoal::os {
namespace {

constexpr std::chrono::milliseconds kCollectedWithin{1'000};
constexpr std::chrono::microseconds kLookAgain{100};

}  // namespace

PidFd PidFd::open(pid_t pid) {
  const long fd = ::syscall(SYS_pidfd_open, pid, 0);  // close-on-exec always
  if (fd < 0) throw SystemError(fmt::format("open a pidfd of process {}", pid));
  return PidFd(Fd(static_cast<int>(fd)));
}

bool PidFd::ended() const { return wait(Deadline::min()); }

bool PidFd::wait(Deadline deadline) const { return poll_one(fd(), POLLIN, deadline); }

std::optional<ProcessEnd> PidFd::reap() const {
  constexpr idtype_t kPidFd = static_cast<idtype_t>(3);  // P_PIDFD, newer than some C libraries
  // A kernel (seen: 6.18) may tell of an end shortly before the parent can collect it; as long as the child
  // is traced, the parent never can.
  const Deadline given_up = deadline_after(kCollectedWithin);
  for (;;) {
    siginfo_t info{};
    const int result = ::waitid(kPidFd, static_cast<id_t>(fd()), &info, WEXITED | WNOHANG);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0) throw SystemError("collect the exit status of a child process");
    if (info.si_pid != 0) {
      if (info.si_code == CLD_EXITED) return ProcessEnd{.code = info.si_status};
      return ProcessEnd{.signal = info.si_status};
    }
    if (!ended() || Clock::now() >= given_up) return std::nullopt;
    std::this_thread::sleep_for(kLookAgain);
  }
}

bool PidFd::send_signal(int signal) const {
  if (::syscall(SYS_pidfd_send_signal, fd(), signal, nullptr, 0) == 0) return true;
  if (errno == ESRCH) return false;
  throw SystemError(fmt::format("send signal {} to a process", signal));
}

}  // namespace shoal::os
