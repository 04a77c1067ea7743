// The three ways to start a worker, behind Launcher::create().
#pragma once

#include <memory>

#include "shoal/process/launcher.h"

namespace shoal::process {

std::unique_ptr<Launcher> make_zygote_launcher(LaunchOptions options);
std::unique_ptr<Launcher> make_spawn_launcher(LaunchOptions options);
std::unique_ptr<Launcher> make_fork_launcher(LaunchOptions options);

/// Checks that this process can open the descriptors for `workers` more, where its workers are its
/// own children. Throws SystemError (EMFILE) naming the limit and the way out.
void require_descriptors(StartMethod method, std::size_t workers);

}  // namespace shoal::process
