// The three ways to start a worker, behind Launcher::create().
#pragma once

#include <memory>

#include "shoal/process/launcher.h"

namespace shoal::process {

std::unique_ptr<Launcher> make_zygote_launcher(LaunchOptions options);
std::unique_ptr<Launcher> make_spawn_launcher(LaunchOptions options);
std::unique_ptr<Launcher> make_fork_launcher(LaunchOptions options);

/// For the methods whose workers are children of this process, which cost it descriptors: that
/// there are enough for `workers` more. Throws SystemError(EMFILE) naming the limit and the way
/// out.
void require_descriptors(StartMethod method, std::size_t workers);

}  // namespace shoal::process
