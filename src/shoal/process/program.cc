#include "shoal/process/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/become_worker.h"
#include "shoal/process/gpu_use.h"
#include "shoal/process/own_thread.h"

namespace shoal::process {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;

void call(const std::function<void()>& hook) {
  if (hook) hook();
}

WorkerContext context_of(const wire::Start& start, bool hide_gpu, os::Fd channel) {
  WorkerContext context;
  context.name = start.name;
  context.index = start.index;
  context.first_env = start.first_env;
  context.num_envs = start.num_envs;
  context.hide_gpu = hide_gpu;
  context.payload = start.payload;
  context.channel = os::SeqPacket(std::move(channel));
  return context;
}

void expect_fds(const os::Message& message, std::size_t count) {
  if (message.fds.size() != count) {
    throw Error(fmt::format("a start message carries {} descriptors instead of {}",
                            message.fds.size(), count));
  }
}

}  // namespace

std::string unfitness(const wire::Setup& setup) {
  if (setup.zygote) {
    if (const auto threads = foreign_threads(); !threads.empty()) {
      return fmt::format("a zygote must have one thread, but the preload started others: {}",
                         fmt::join(threads, ", "));
    }
  }
  if (setup.hide_gpu) {
    if (const auto gpu = gpu_in_use()) {
      return fmt::format("a worker started with hide_gpu must not use a GPU, but {}", *gpu);
    }
  }
  return {};
}

Program::Program(os::SeqPacket control, wire::Setup setup)
    : control_(std::move(control)), setup_(std::move(setup)) {}

Program Program::attach() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);

  if (::fcntl(wire::kControlFd, F_GETFD) < 0) {
    throw Error(
        "descriptor 3 is not open: this program is started by a Shoal launcher, not by hand");
  }
  os::SeqPacket control{os::Fd(wire::kControlFd)};
  os::set_inheritable(control.fd(), false);
  os::Message message;
  if (control.recv(message) != os::RecvOutcome::kMessage)
    ::_exit(kExitFailed);  // the parent is gone
  ByteReader reader(message.bytes);
  if (wire::read_header(reader).kind != wire::Kind::kSetup) {
    throw Error("the first control message is not the setup");
  }
  wire::Setup setup = wire::decode_setup(reader);
  die_with_parent(setup.parent_pid);
  return {std::move(control), std::move(setup)};
}

int Program::run(const ForkHooks& hooks) {
  if (const std::string reason = unfitness(setup_); !reason.empty()) {
    ErrorReport report;
    report.type = "RuntimeError";
    report.message = reason;
    return fail(report);
  }
  if (!setup_.zygote) run_single(hooks);
  return serve(hooks);
}

int Program::fail(const ErrorReport& report) noexcept {
  try {
    if (!tell(report)) std::fprintf(stderr, "%s\n", report.describe().c_str());
  } catch (...) {
    // The parent is gone, or cannot be told; the exit code remains.
  }
  return kExitFailed;
}

bool Program::tell(const ErrorReport& report) {
  if (setup_.zygote) {
    ByteWriter writer = wire::begin(wire::Kind::kSetupFailed);
    writer.bytes(report.encode());
    return control_.send(writer.take()) == os::SendOutcome::kSent;
  }
  os::Message message;
  if (control_.recv(message) != os::RecvOutcome::kMessage || message.fds.empty()) return false;
  os::SeqPacket channel(std::move(message.fds.front()));
  return channel.send(report.encode()) == os::SendOutcome::kSent;
}

int Program::serve(const ForkHooks& hooks) {
  const os::BlockSignals blocked{SIGCHLD};
  child_ended_.emplace(os::SignalFd{SIGCHLD});
  ByteWriter ready = wire::begin(wire::Kind::kReady);
  ready.number(static_cast<std::int32_t>(::getpid()));
  send(ready.take());
  for (;;) {
    std::array<pollfd, 2> entries{pollfd{control_.fd(), POLLIN, 0},
                                  pollfd{child_ended_->fd(), POLLIN, 0}};
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) {
      throw SystemError("wait for requests in the zygote");
    }
    if (entries[1].revents != 0) {
      while (child_ended_->read()) continue;
      report_ended_children();
    }
    if (entries[0].revents == 0) continue;
    os::Message message;
    const auto outcome = control_.recv(message, os::Clock::now());
    if (outcome == os::RecvOutcome::kClosed) return kExitDone;
    if (outcome != os::RecvOutcome::kMessage) continue;
    ByteReader reader(message.bytes);
    const wire::Header header = wire::read_header(reader);
    if (header.kind != wire::Kind::kStart) throw Error("a zygote takes start messages only");
    const wire::Start start = wire::decode_start(reader);
    start_worker(hooks, header.request, start, std::move(message));
  }
}

void Program::start_worker(const ForkHooks& hooks, std::uint64_t request, const wire::Start& start,
                           os::Message message) {
  expect_fds(message, 3);
  const pid_t zygote = ::getpid();
  call(hooks.before_fork);
  const pid_t pid = ::fork();
  const int fork_error = errno;
  if (pid == 0) run_child(hooks, start, std::move(message), zygote);
  call(hooks.after_fork_parent);
  if (pid < 0) {
    ByteWriter writer = wire::begin(wire::Kind::kStartFailed, request);
    writer.number(static_cast<std::int32_t>(fork_error));
    writer.text(fmt::format("fork {} from the zygote", start.name));
    send(writer.take());
    return;
  }
  children_[pid] = request;
  const os::PidFd pidfd = os::PidFd::open(pid);
  ByteWriter writer = wire::begin(wire::Kind::kStarted, request);
  writer.number(static_cast<std::int32_t>(pid));
  const int fd = pidfd.fd();
  send(writer.take(), {&fd, 1});
}

void Program::run_child(const ForkHooks& hooks, const wire::Start& start, os::Message message,
                        pid_t zygote) noexcept {
  die_with_parent(zygote);
  control_.close();
  child_ended_.reset();
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  try {
    redirect_output(std::move(message.fds[1]), std::move(message.fds[2]));
    WorkerContext context = context_of(start, setup_.hide_gpu, std::move(message.fds[0]));
    call(hooks.after_fork_child);
    become_worker(hooks.entries, start.entry, std::move(context));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s could not start: %s\n", start.name.c_str(), error.what());
    ::_exit(kExitFailed);
  }
}

void Program::run_single(const ForkHooks& hooks) {
  os::Message message;
  if (control_.recv(message) != os::RecvOutcome::kMessage) ::_exit(kExitFailed);
  ByteReader reader(message.bytes);
  if (wire::read_header(reader).kind != wire::Kind::kStart)
    throw Error("a setup is followed by a start");
  const wire::Start start = wire::decode_start(reader);
  expect_fds(message, 1);
  control_.close();
  become_worker(hooks.entries, start.entry,
                context_of(start, setup_.hide_gpu, std::move(message.fds[0])));
}

void Program::report_ended_children() {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    const auto found = children_.find(pid);
    if (found == children_.end()) continue;  // left behind by a preloaded module
    const wire::Exited exited{.pid = pid,
                              .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                              .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    const std::uint64_t request = found->second;
    children_.erase(found);
    send(wire::encode(exited, request));
  }
}

void Program::send(std::span<const std::byte> bytes, std::span<const int> fds) {
  // kClosed: the parent is gone; the kernel is about to end this process, or the next recv() does.
  static_cast<void>(control_.send(bytes, fds));
}

}  // namespace shoal::process
