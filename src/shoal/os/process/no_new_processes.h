// A process that may start no others.
#pragma once

namespace shoal::os {

/// From here on the kernel refuses this process every new one (fork, vfork, clone, posix_spawn:
/// EPERM), for good and for all of its threads, by a seccomp filter. New threads are let through,
/// and so is exec. Throws SystemError where the kernel has no such filters or does not let this
/// process have one. A second call adds nothing.
///
/// It keeps programs from mistakes; it is no sandbox.
void forbid_new_processes();

/// Whether forbid_new_processes() holds in this process.
bool new_processes_forbidden() noexcept;

}  // namespace shoal::os
