#include "shoal/process/testing/entries.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <span>
#include <sstream>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/fd.h"
#include "shoal/os/testing/child.h"

namespace shoal::process::testing {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int echo(WorkerContext& context) {
  os::Message message;
  while (context.channel.recv(message) == os::RecvOutcome::kMessage) {
    static_cast<void>(context.channel.send(message.bytes));
  }
  return 0;
}

int describe(WorkerContext& context) {
  send_text(context.channel, fmt::format("{}\n{}\n{}\n{}", context.name, context.index,
                                         context.first_env, context.num_envs));
  return echo(context);
}

int exit_with(WorkerContext& context) { return std::stoi(text_of(context.payload)); }

int end_by_signal(WorkerContext& context) {
  const int signal = std::stoi(text_of(context.payload));
  std::signal(signal, SIG_DFL);
  ::raise(signal);
  return 0;
}

int throw_text(WorkerContext& context) { throw InvalidArgument(text_of(context.payload)); }

int print(WorkerContext& context) {
  std::istringstream lines(text_of(context.payload));
  for (std::string line; std::getline(lines, line);) {
    const int fd = line[0] == 'e' ? STDERR_FILENO : STDOUT_FILENO;
    line += '\n';
    if (::write(fd, line.data(), line.size()) < 0) return 1;
  }
  return 0;
}

int write_much(WorkerContext& context) {
  const std::string line = std::string(99, 'x') + '\n';
  for (long left = std::stol(text_of(context.payload)); left > 0; left -= 100) {
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
  }
  return 0;
}

int get_variable(WorkerContext& context) {
  const char* value = std::getenv(text_of(context.payload).c_str());
  send_text(context.channel, value != nullptr ? value : "unset");
  return 0;
}

int list_descriptors(WorkerContext& context) {
  std::string list;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd == ::dirfd(folder)) continue;
    std::array<char, 256> target{};
    static_cast<void>(
        ::readlinkat(::dirfd(folder), entry->d_name, target.data(), target.size() - 1) + 0);
    list += fmt::format("{} {}\n", fd, target.data());
  }
  ::closedir(folder);
  send_text(context.channel, list);
  return 0;
}

/// Sends as many numbered messages as the payload says.
int send_many(WorkerContext& context) {
  const int count = std::stoi(text_of(context.payload));
  for (int i = 0; i < count; ++i) send_text(context.channel, std::to_string(i));
  return echo(context);
}

/// Ends late: the kernel frees as many bytes as the payload says after it has closed the channel.
int hold_memory(WorkerContext& context) {
  const auto bytes = static_cast<off_t>(std::stol(text_of(context.payload)));
  const os::Fd memory(::memfd_create("held", MFD_CLOEXEC));
  if (!memory || ::fallocate(memory.get(), 0, 0, bytes) != 0) return 1;
  send_text(context.channel, "ready");
  for (;;) ::pause();
}

int sleep_for_ever(WorkerContext& context) {
  send_text(context.channel, "ready");
  for (;;) ::pause();
}

}  // namespace

EntryTable entries() {
  EntryTable table;
  table.add("echo", &echo);
  table.add("describe", &describe);
  table.add("exit", &exit_with);
  table.add("signal", &end_by_signal);
  table.add("throw", &throw_text);
  table.add("print", &print);
  table.add("write", &write_much);
  table.add("getenv", &get_variable);
  table.add("descriptors", &list_descriptors);
  table.add("send", &send_many);
  table.add("hold", &hold_memory);
  table.add("sleep", &sleep_for_ever);
  return table;
}

WorkerSpec spec(std::string entry, const std::string& payload) {
  WorkerSpec result;
  result.name = "worker 3";
  result.entry = std::move(entry);
  const auto bytes = std::as_bytes(std::span(payload));
  result.payload.assign(bytes.begin(), bytes.end());
  result.index = 3;
  result.first_env = 12;
  result.num_envs = 4;
  return result;
}

LaunchOptions options(StartMethod method) {
  LaunchOptions result;
  result.method = method;
  result.interpreter = {SHOAL_TEST_WORKER};
  result.relay_output = false;
  auto hooks = std::make_shared<ForkHooks>();
  hooks->entries = entries();
  result.fork_hooks = hooks;
  return result;
}

std::string recv_text(Channel& channel) {
  os::Message message;
  switch (channel.recv(message, os::testing::test_deadline())) {
    case os::RecvOutcome::kMessage:
      return text_of(message.bytes);
    case os::RecvOutcome::kClosed:
      return "closed";
    case os::RecvOutcome::kTimedOut:
      break;
  }
  return "timed out";
}

void send_text(Channel& channel, const std::string& text) {
  static_cast<void>(channel.send(std::as_bytes(std::span(text))));
}

}  // namespace shoal::process::testing
