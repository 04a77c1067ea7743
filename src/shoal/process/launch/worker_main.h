// main() of a native worker program: a zygote or a single worker, without Python.
#pragma once

#include <string>
#include <vector>

#include "shoal/process/entry.h"

namespace shoal::process {

/// Runs what the parent asks for (zygote.h, on descriptor 3) and returns the exit code.
/// LaunchOptions::preload are the plug-ins (shared libraries) that it opens first.
int worker_main(const EntryTable& entries);

/// LaunchOptions::interpreter for the program `shoal-worker`: what the environment variable
/// SHOAL_WORKER says, else the one beside libshoal.so or the running program, or in
/// ../libexec/shoal or ../bin of there. Throws Error saying where it was looked for.
std::vector<std::string> native_interpreter();

}  // namespace shoal::process
