#include "shoal/process/launch/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/boot/become_worker.h"
#include "shoal/process/self/gpu_use.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/process/supervise/parent_watch.h"
#include "shoal/process/zygote/credit_cells.h"
#include "shoal/process/zygote/zygote.h"

namespace shoal::process {
namespace {

constexpr int kExitFailed = 1;

void expect_fds(const os::Message& message, std::size_t count) {
  if (message.fds.size() != count) {
    throw Error(fmt::format("a control message carries {} descriptors instead of {}",
                            message.fds.size(), count));
  }
}

/// SIGINT is blocked since the program began, so none was lost.
void settle_interrupts(const wire::Setup& setup) {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  if (setup.plain && !setup.zygote) {
    ::sigaddset(&blocked, SIGINT);
  } else {
    std::signal(SIGINT, SIG_IGN);
  }
  ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
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

Program::Program(os::SeqPacket control, wire::Setup setup, std::vector<os::Fd> fds)
    : control_(std::move(control)), setup_(std::move(setup)), fds_(std::move(fds)) {}

Program Program::attach() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
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
  settle_interrupts(setup);
  die_with_parent(setup.parent_pid);
  expect_fds(message, setup.zygote ? 2 : 0);
  return {std::move(control), std::move(setup), std::move(message.fds)};
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
    // The parent is gone, or cannot be told; it may still see the exit code.
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
  Zygote zygote(std::move(control_), os::SeqPacket(std::move(fds_.at(0))),
                CreditCells::attach(std::move(fds_.at(1))), setup_.line,
                {.hide_gpu = setup_.hide_gpu, .plain = setup_.plain});
  return zygote.serve(hooks);
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
  WorkerContext context = worker_context(start, setup_.hide_gpu);
  context.channel = Channel(os::SeqPacket(std::move(message.fds[0])));
  if (setup_.plain) {
    end_after_parent(setup_.parent_pid, kParentGrace);
  } else {
    end_family_after_parent(setup_.parent_pid);
  }
  become_worker(hooks.entries, start.entry, std::move(context), setup_.plain);
}

}  // namespace shoal::process
