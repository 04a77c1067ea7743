#include "shoal/process/boot/become_worker.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/error_report.h"
#include "shoal/process/supervise/orphans.h"

namespace shoal::process {
namespace {

constexpr int kExitFailed = 1;

/// Tells the parent of the exception that is being handled: through the channel, or else on stderr.
void report_failure(WorkerContext& context) noexcept {
  try {
    const ErrorReport report = ErrorReport::from_current_exception();
    if (context.channel && context.channel.send(report.encode()) == os::SendOutcome::kSent) return;
    std::fprintf(stderr, "%s failed: %s\n", context.name.c_str(), report.describe().c_str());
  } catch (...) {
    std::fputs("a worker failed, and so did telling why\n", stderr);
  }
}

}  // namespace

void die_with_parent(pid_t parent) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitFailed);
}

void redirect_output(os::Fd output, os::Fd errors) {
  const os::Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0 ||
      ::dup2(output.get(), STDOUT_FILENO) < 0 || ::dup2(errors.get(), STDERR_FILENO) < 0) {
    throw SystemError("redirect a worker's output");
  }
}

WorkerContext worker_context(const wire::Start& start, bool hide_gpu) {
  WorkerContext context;
  context.name = start.name;
  context.index = start.index;
  context.first_env = start.first_env;
  context.num_envs = start.num_envs;
  context.hide_gpu = hide_gpu;
  context.payload = start.payload;
  return context;
}

void become_worker(const EntryTable& entries, const std::string& entry, WorkerContext context,
                   bool plain) noexcept {
  if (!plain) {
    std::signal(SIGINT, SIG_IGN);  // Ctrl-C is the parent's affair: it ends its workers
    ::prctl(PR_SET_NAME, context.name.c_str());
    lead_own_session();
  }
  int code = kExitFailed;
  try {
    code = entries.at(entry)(context);
  } catch (...) {
    report_failure(context);
  }
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(code);
}

}  // namespace shoal::process
