#include "shoal/process/supervise/parent_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "shoal/process/supervise/orphans.h"

#ifdef __SANITIZE_THREAD__
#include <thread>

#include "shoal/os/process/pidfd.h"
#include "shoal/os/process/signals.h"
#include "shoal/process/self/own_thread.h"
#endif

namespace shoal::process {
namespace {

using std::chrono::milliseconds;

// Globals, since a signal handler has nothing else. Written before the handler is installed.
pid_t watched_parent = -1;
pid_t this_process = -1;  // a forked child inherits the handler
itimerspec last_grace{};
timer_t last_timer{};
volatile sig_atomic_t interrupts = 0;

/// The kernel reports the death of the parent's thread in the same way as that of the parent.
void on_parent_death(int /*signal*/) {
  const int error = errno;
  if (::getppid() != watched_parent) {
    ::timer_settime(last_timer, 0, &last_grace, nullptr);
    if (interrupts != 0) ::raise(SIGINT);
  }
  errno = error;
}

// What follows runs in a signal handler: system calls only.

std::int64_t now_ms() {
  std::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

int number_in(std::string_view text) {
  int number = -1;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() && end == text.data() + text.size() ? number : -1;
}

/// For each entry of a folder whose name is a number.
template <class Visit>
void for_each_number(const char* folder, Visit visit) {
  const int fd = ::open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  alignas(dirent64) std::array<char, 2048> buffer;
  for (;;) {
    const long count = ::syscall(SYS_getdents64, fd, buffer.data(), buffer.size());
    if (count <= 0) break;
    for (long at = 0; at < count;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
      at += entry->d_reclen;
      if (const int number = number_in(entry->d_name); number >= 0 && number != fd) visit(number);
    }
  }
  ::close(fd);
}

/// The parent of a process, from /proc/pid/stat. Behind the name, which is in parentheses and may
/// contain anything, come the state and the parent.
pid_t parent_of(pid_t pid) {
  std::array<char, 32> path{"/proc/"};
  char* end = std::to_chars(path.data() + 6, path.data() + path.size() - 6, pid).ptr;
  end = std::ranges::copy(std::string_view("/stat"), end).out;
  *end = '\0';
  const int fd = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  std::array<char, 256> text;
  const ssize_t count = ::read(fd, text.data(), text.size());
  ::close(fd);
  std::string_view rest(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  const auto name_end = rest.rfind(") ");
  if (name_end == std::string_view::npos || rest.size() < name_end + 5) return -1;
  rest.remove_prefix(name_end + 4);  // the state, a letter
  return number_in(rest.substr(0, rest.find(' ')));
}

void kill_children() {
  for_each_number("/proc", [](pid_t pid) {
    if (parent_of(pid) == this_process) ::kill(pid, SIGKILL);  // not collected: still its number
  });
}

/// Closes the files of all descriptors, so that processes that wait for this one's end by a pipe
/// see it. The numbers stay taken, so that no other thread writes to a wrong file.
void let_go_of_descriptors() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  for_each_number("/proc/self/fd", [nothing](int fd) {
    if (fd != nothing) ::dup2(nothing, fd);
  });
}

/// The children of a killed child become this process's own, since it is their reaper; hence the
/// rounds. Bounded: a process that the kernel cannot end is left to it.
void end_children() {
  constexpr milliseconds kPatience{5'000};  // nobody waits for this process
  constexpr timespec kTurn{.tv_sec = 0, .tv_nsec = 2'000'000};
  const std::int64_t start = now_ms();
  for (;;) {
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, nullptr, WNOHANG)) > 0) continue;
    const std::int64_t waited = now_ms() - start;
    if (pid < 0 || waited >= kPatience.count()) return;
    if (waited >= kOrphanGrace.count()) kill_children();
    ::nanosleep(&kTurn, nullptr);
  }
}

void on_parent_death_of_worker(int /*signal*/) {
  const int error = errno;
  if (::getpid() == this_process && ::getppid() != watched_parent) {
    let_go_of_descriptors();
    end_children();
    ::kill(this_process, SIGKILL);
  }
  errno = error;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

int parent_death_signal() noexcept { return SIGRTMAX - 4; }

void interrupt_after_parent() noexcept {
  interrupts = 1;
  if (watched_parent != -1 && ::getppid() != watched_parent) ::raise(SIGINT);
}

void end_after_parent(pid_t parent, milliseconds grace) noexcept {
  constexpr milliseconds kSecond{1'000};
  watched_parent = parent;
  last_grace.it_value.tv_sec = static_cast<time_t>(grace / kSecond);
  last_grace.it_value.tv_nsec = static_cast<long>((grace % kSecond).count()) * 1'000'000;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  int signal = parent_death_signal();
  if (::timer_create(CLOCK_MONOTONIC, &event, &last_timer) == 0) {
    handle(signal, &on_parent_death);
  } else {
    signal = SIGKILL;  // ulimit -i is used up
  }
  ::prctl(PR_SET_PDEATHSIG, signal);
  if (::getppid() != parent) ::raise(signal);
}

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer holds a signal back until the process makes a call that it intercepts. A process
// that waits on a futex never does, so here a thread watches.
void end_family_after_parent(pid_t parent) noexcept {
  watched_parent = parent;
  this_process = ::getpid();
  const auto blocked = os::BlockSignals::all();  // signals go to the worker's own threads
  std::thread([pidfd = os::PidFd::open(parent)] {
    const OwnThread declared;
    if (::getppid() == watched_parent) static_cast<void>(pidfd.wait(os::kNoDeadline));
    while (::getppid() == watched_parent)
      ::usleep(1000);  // it has ended, and is told so a little later
    on_parent_death_of_worker(0);
  }).detach();
}
#else
void end_family_after_parent(pid_t parent) noexcept {
  watched_parent = parent;
  this_process = ::getpid();
  handle(SIGCONT, &on_parent_death_of_worker);
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  if (::getppid() != parent) ::raise(SIGCONT);
}
#endif

}  // namespace shoal::process
