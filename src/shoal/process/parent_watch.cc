#include "shoal/process/parent_watch.h"

#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace shoal::process {
namespace {

// A signal handler has nothing but globals. Written before the handler is installed.
pid_t watched_parent = -1;
itimerspec last_grace{};
timer_t last_timer{};
volatile sig_atomic_t interrupts = 0;

/// The death of a thread of the parent is told as its own death would be.
void on_parent_death(int /*signal*/) {
  const int error = errno;
  if (::getppid() != watched_parent) {
    ::timer_settime(last_timer, 0, &last_grace, nullptr);
    if (interrupts != 0) ::raise(SIGINT);
  }
  errno = error;
}

}  // namespace

int parent_death_signal() noexcept { return SIGRTMAX - 4; }

void interrupt_after_parent() noexcept {
  interrupts = 1;
  if (watched_parent != -1 && ::getppid() != watched_parent) ::raise(SIGINT);
}

void end_after_parent(pid_t parent, std::chrono::milliseconds grace) noexcept {
  constexpr std::chrono::milliseconds kSecond{1'000};
  watched_parent = parent;
  last_grace.it_value.tv_sec = static_cast<time_t>(grace / kSecond);
  last_grace.it_value.tv_nsec = static_cast<long>((grace % kSecond).count()) * 1'000'000;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  int signal = parent_death_signal();
  if (::timer_create(CLOCK_MONOTONIC, &event, &last_timer) == 0) {
    struct sigaction action{};
    action.sa_handler = &on_parent_death;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  } else {
    signal = SIGKILL;  // ulimit -i is used up
  }
  ::prctl(PR_SET_PDEATHSIG, signal);
  if (::getppid() != parent) ::raise(signal);
}

}  // namespace shoal::process
