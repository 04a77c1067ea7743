// Starts a fresh program that speaks the control protocol (wire.h).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "shoal/os/process/pidfd.h"
#include "shoal/process/boot/environment.h"

namespace shoal::process {

struct SpawnedProgram {
  pid_t pid = -1;
  os::PidFd pidfd;
};

/// Runs argv[0] (looked up in PATH) with nothing open but 0 (/dev/null), 1, 2 and 3, which are
/// `output`, `errors` and `control`; default signal handlers; SIGINT blocked until the program
/// ignores or handles it. Throws SystemError naming the program.
///
/// Threads: the program may ask to die with the calling *thread* (PR_SET_PDEATHSIG), so call it in
/// an EventLoop.
SpawnedProgram spawn_program(const std::vector<std::string>& argv, const Environment& environment,
                             int control, int output, int errors);

}  // namespace shoal::process
