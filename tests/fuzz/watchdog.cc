#include "watchdog.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

extern "C" {
__attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

// Options of the sanitizers, where the program has them. A length that nobody checked is an
// allocation that no input of ours is large enough for.
const char* __asan_default_options();
const char* __asan_default_options() {
  return "handle_abort=1:allocator_may_return_null=0:max_allocation_size_mb=512:"
         "quarantine_size_mb=16:detect_stack_use_after_return=1:strict_string_checks=1";
}
const char* __ubsan_default_options();
const char* __ubsan_default_options() { return "print_stacktrace=1:abort_on_error=1"; }
}

namespace shoal::fuzz {
namespace {

// For handlers of signals: there is one input at a time.
std::atomic<const std::byte*> input_data{nullptr};
std::atomic<std::size_t> input_bytes{0};
std::atomic<const char*> what_happened{"crash"};
std::string& folder() {
  static auto* const the = new std::string;
  return *the;
}

std::uint64_t hash(const std::byte* data, std::size_t bytes) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < bytes; ++i) {
    sum = (sum ^ static_cast<std::uint64_t>(data[i])) * 0x100000001b3;
  }
  return sum;
}

/// Async-signal-safe but for snprintf of numbers and texts.
void write_input() {
  static std::atomic_flag once = ATOMIC_FLAG_INIT;
  const std::byte* const data = input_data.load();
  const std::size_t bytes = input_bytes.load();
  if (once.test_and_set() || data == nullptr) return;
  char path[4096];
  std::snprintf(path, sizeof path, "%s%s-%016llx", folder().c_str(), what_happened.load(),
                static_cast<unsigned long long>(hash(data, bytes)));
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const bool written = fd >= 0 && ::write(fd, data, bytes) == static_cast<ssize_t>(bytes);
  if (fd >= 0) ::close(fd);
  char text[4200];
  const int length = std::snprintf(
      text, sizeof text, "\n%s with an input of %zu bytes%s%s\n", what_happened.load(), bytes,
      written ? ", written to " : ", which could not be written to ", path);
  static_cast<void>(
      !::write(STDERR_FILENO, text, std::min(static_cast<std::size_t>(length), sizeof text - 1)));
}

void on_signal(int number) {
  write_input();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void watch_for_crashes() {
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(write_input);
    return;  // it handles the signals
  }
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) {
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK | SA_RESETHAND | SA_NODEFER;
    ::sigaction(number, &action, nullptr);
  }
  // What overflows the stack needs another.
  static auto* const memory = new char[1 << 16];
  const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = 1 << 16};
  ::sigaltstack(&stack, nullptr);
}

}  // namespace

/// A thread that looks at how long the input takes: the CPU time that the program spends on it, or looks at which no thread
/// of the program runs or waits for a CPU. So an input beside other programs has all the time that it does not get. No
/// timer: its signal would interrupt the system calls of the program.
class Watchdog::Clock {
 public:
  explicit Clock(std::chrono::seconds timeout) : timeout_(timeout), watched_(::pthread_self()) {
    if (timeout.count() > 0) thread_ = std::thread([this] { run(); });
  }
  ~Clock() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<std::uint64_t> number{0};  // of the input; odd while it is under way

 private:
  void run() {
    std::unique_lock lock(mutex_);
    constexpr std::chrono::milliseconds kLook{200};
    std::uint64_t seen = 0;
    int idle = 0;  // looks at this input
    auto begun = cpu_time();
    while (!changed_.wait_for(lock, kLook, [this] { return over_; })) {
      const std::uint64_t now = number.load();
      if (now != seen) {
        seen = now;
        idle = 0;
        begun = cpu_time();
      }
      if (!wants_cpu()) ++idle;
      if (now % 2 == 0 || (idle * kLook < timeout_ && cpu_time() - begun < timeout_)) continue;
      what_happened = "hang";
      write_input();
      ::pthread_kill(watched_, SIGABRT);
      changed_.wait_for(lock, std::chrono::seconds(30), [this] { return over_; });
      std::_Exit(77);
    }
  }

  static std::chrono::nanoseconds cpu_time() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

  /// Whether a thread of this process but this one runs, or would if it had a CPU or what it reads.
  static bool wants_cpu() {
    const std::string me = std::to_string(::gettid());
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      if (thread.path().filename() == me) continue;
      std::string line;
      std::getline(std::ifstream(thread.path() / "stat"), line);
      const std::size_t name_end = line.rfind(')');
      if (name_end + 2 < line.size() && (line[name_end + 2] == 'R' || line[name_end + 2] == 'D'))
        return true;
    }
    return false;
  }

  const std::chrono::seconds timeout_;
  const pthread_t watched_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

Watchdog::Watchdog(std::string to, std::chrono::seconds timeout) {
  folder() = std::move(to);
  watch_for_crashes();
  clock_ = std::make_unique<Clock>(timeout);
}

Watchdog::~Watchdog() = default;

void Watchdog::begin(std::span<const std::byte> input) noexcept {
  input_data = input.data();
  input_bytes = input.size();
  clock_->number.fetch_add(1);
}

void Watchdog::end() noexcept {
  clock_->number.fetch_add(1);
  input_data = nullptr;
}

void Watchdog::fail(const char* what) {
  what_happened = what;
  write_input();
  std::_Exit(77);
}

}  // namespace shoal::fuzz
