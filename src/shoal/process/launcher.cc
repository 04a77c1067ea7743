#include "shoal/process/launcher.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/signals.h"
#include "shoal/process/launchers.h"

namespace shoal::process {

std::string ExitStatus::describe() const {
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
  if (options.threads < 1) {
    throw InvalidArgument(fmt::format("threads must be at least 1, not {}", options.threads));
  }
  switch (options.method) {
    case StartMethod::kFork:
      return make_fork_launcher(std::move(options));
    case StartMethod::kSpawn:
      return make_spawn_launcher(std::move(options));
    default:
      return make_zygote_launcher(std::move(options));
  }
}

}  // namespace shoal::process
