#include "shoal/process/self/own_thread.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "shoal/process/self/loaded_libraries.h"

namespace shoal::process {
namespace {

// The list is as global as what it describes, the threads of this process. An array of atomics, not
// a locked container: it must be readable in a forked child, whatever the other threads did at the
// moment of the fork.
constexpr int kSlots = 1024;
std::array<std::atomic<pid_t>, kSlots> slots;

/// OpenBLAS ends its pool itself in a handler before every fork, and starts it again on demand.
/// Doing so now leaves those threads to be counted that would be alive at a fork. False where one of
/// those that are loaded hides the function that does it, as NumPy's does from 2.5 on.
bool stop_openblas_pools() {
  bool all = true;
  for (const std::string& path : loaded_libraries()) {
    if (file_name(path).find("openblas") == std::string_view::npos) continue;
    void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    using Shutdown = int (*)();
    if (auto shutdown = reinterpret_cast<Shutdown>(::dlsym(library, "blas_thread_shutdown_"))) {
      shutdown();
    } else {
      all = false;
    }
    ::dlclose(library);
  }
  return all;
}

/// Has libraries do what they do before every fork, by a fork whose child ends at once.
void run_fork_handlers() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

#ifdef __SANITIZE_THREAD__
/// ThreadSanitizer's own thread, which it handles around every fork: it blocks every signal, as no
/// ordinary thread does.
bool is_sanitizers(const std::string& task) {
  std::ifstream file("/proc/self/task/" + task + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    constexpr std::uint64_t kOrdinary =
        (1U << (SIGINT - 1)) | (1U << (SIGUSR1 - 1)) | (1U << (SIGTERM - 1));
    return (std::stoull(line.substr(line.find_last_of(" \t") + 1), nullptr, 16) & kOrdinary) ==
           kOrdinary;
  }
  return false;
}
#else
bool is_sanitizers(const std::string&) { return false; }
#endif

/// Whether the thread runs no code of this program any more. It stays in the list of tasks for a
/// moment after pthread_join() has returned.
bool is_exiting(const std::string& task) {
  constexpr unsigned kExiting = 4;  // PF_EXITING of the kernel's sched.h
  std::ifstream file("/proc/self/task/" + task + "/stat");
  std::string line;
  std::getline(file, line);
  // state, parent, group, session, terminal, its group, flags; the name before them may hold
  // anything
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  unsigned flags = kExiting;  // no line: it has just ended
  for (int i = 0; i < 6; ++i) fields >> skipped;
  fields >> flags;
  return (flags & kExiting) != 0;
}

std::string thread_name(const std::string& task) {
  std::ifstream file("/proc/self/task/" + task + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

OwnThread::OwnThread() noexcept : slot_(-1) {
  const auto tid = static_cast<pid_t>(::syscall(SYS_gettid));
  for (int i = 0; i < kSlots; ++i) {
    pid_t free = 0;
    // Relaxed: the id is the whole message, nothing else is published with it.
    if (slots[i].compare_exchange_strong(free, tid, std::memory_order_relaxed)) {
      slot_ = i;
      return;
    }
  }
  // In a full table nothing is declared: the thread then counts as foreign, which errs on the safe
  // side.
}

OwnThread::OwnThread(const char* name) noexcept : OwnThread() {
  ::pthread_setname_np(::pthread_self(), name);
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

OwnThread::~OwnThread() {
  if (slot_ >= 0) slots[slot_].store(0, std::memory_order_relaxed);
}

std::vector<pid_t> own_threads() {
  std::vector<pid_t> ids;
  for (const auto& slot : slots) {
    const pid_t tid = slot.load(std::memory_order_relaxed);
    if (tid != 0) ids.push_back(tid);
  }
  return ids;
}

namespace {

std::vector<std::string> threads_of_others() {
  const auto own = own_threads();
  const auto caller = static_cast<pid_t>(::syscall(SYS_gettid));
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const std::string task = entry.path().filename().string();
    pid_t tid = 0;
    std::from_chars(task.data(), task.data() + task.size(), tid);
    if (tid == caller || std::ranges::find(own, tid) != own.end() || is_sanitizers(task)) continue;
    if (!is_exiting(task)) names.push_back(fmt::format("{} ({})", tid, thread_name(task)));
  }
  return names;
}

}  // namespace

std::vector<std::string> foreign_threads() {
  const bool stopped = stop_openblas_pools();
  std::vector<std::string> names = threads_of_others();
  if (stopped || names.empty()) return names;
  run_fork_handlers();
  return threads_of_others();
}

}  // namespace shoal::process
