// The three ways to start a worker, behind Launcher::create().
#pragma once

#include <memory>

#include "shoal/process/launcher.h"

namespace shoal::process {

std::unique_ptr<Launcher> make_zygote_launcher(LaunchOptions options);
std::unique_ptr<Launcher> make_spawn_launcher(LaunchOptions options);
std::unique_ptr<Launcher> make_fork_launcher(LaunchOptions options);

}  // namespace shoal::process
