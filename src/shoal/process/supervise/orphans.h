// Processes that a worker started, and what ends them when the worker has ended, however it ended.
//
// A worker leads a session, and is the reaper of its descendants: while it lives, all of them stay
// below it. A zygote is the reaper of its workers: what a dead worker leaves behind becomes the
// zygote's child, and the zygote ends it. Where there is no zygote (fork, spawn), or the zygote was
// killed itself, the launcher's process ends what is left of the workers' sessions. Only then can a
// process escape: one that has made a session of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace shoal::process {

/// How long processes that a dead worker left behind have to end by themselves. Some clean up
/// first, as Python's resource tracker does.
inline constexpr std::chrono::milliseconds kOrphanGrace{200};

/// In a worker, before its entry.
void lead_own_session() noexcept;

/// In a zygote: what its workers leave behind becomes its child.
void adopt_orphans() noexcept;

/// The children of this process, also those that have ended and that nobody has collected. Not for
/// signal handlers; takes some tens of microseconds.
std::vector<pid_t> children_of_this_process();

/// Kills every process of these sessions. A session whose leader has ended keeps its number as long
/// as a process is in it. Looks at every process of the machine.
void end_sessions(const std::vector<pid_t>& sessions);

}  // namespace shoal::process
