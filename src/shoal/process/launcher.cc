#include "shoal/process/launcher.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/fd.h"
#include "shoal/os/limits/limits.h"
#include "shoal/os/process/signals.h"
#include "shoal/process/launch/launchers.h"

namespace shoal::process {

std::string ExitStatus::describe() const {
  if (zygote && zygote->sub_zygote > 0) {
    return fmt::format(
        "its zygote (pid {}), whose sub-zygote (pid {}) ended with {} and takes all workers with "
        "it",
        zygote->pid, zygote->sub_zygote, zygote->status.describe());
  }
  if (zygote) {
    return fmt::format("its zygote (pid {}), which ended with {} and takes its workers with it",
                       zygote->pid, zygote->status.describe());
  }
  if (!known) return "an unknown exit status";
  if (signal != 0) return fmt::format("signal {} ({})", signal, os::signal_name(signal));
  return fmt::format("exit code {}", code);
}

std::unique_ptr<Launcher> Launcher::create(LaunchOptions options) {
  if (options.method == StartMethod::kAuto) options.method = StartMethod::kForkserver;
  if (options.method != StartMethod::kFork && options.interpreter.empty()) {
    throw InvalidArgument(fmt::format("start method '{}' needs the argv of a program to start",
                                      process::name(options.method)));
  }
  if (options.threads < (options.plain ? 0 : 1)) {
    throw InvalidArgument(fmt::format("threads must be at least 1, not {}", options.threads));
  }
  os::open_standard_streams();
  switch (options.method) {
    case StartMethod::kFork:
      return make_fork_launcher(std::move(options));
    case StartMethod::kSpawn:
      return make_spawn_launcher(std::move(options));
    default:
      return make_zygote_launcher(std::move(options));
  }
}

void require_descriptors(StartMethod method, std::size_t workers) {
  constexpr std::size_t kPerWorker = 4;  // channel, pidfd, and the pipes of stdout and stderr
  constexpr std::size_t kSpare = 16;  // the other ends of those of the worker that is being started
  const std::size_t needed = workers * kPerWorker + kSpare;
  const std::size_t left = os::open_files_left();
  if (needed <= left) return;
  throw SystemError(
      fmt::format("start {} workers by '{}', which takes {} descriptors of this process: ulimit -n "
                  "leaves {}. Use context='forkserver' (or 'auto'), whose workers take none, or "
                  "raise ulimit -n",
                  workers, process::name(method), needed, left),
      EMFILE);
}

bool Launcher::ready_by(os::Deadline) { return true; }

void Launcher::begin(std::vector<std::string>, std::vector<std::byte>) {
  throw InvalidState("this launcher was not started ahead of time, or has begun already");
}

}  // namespace shoal::process
