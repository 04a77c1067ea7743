// Processes that a worker started, and what ends them when the worker has ended, however it ended.
//
// A worker leads a session and is the reaper of its descendants, so that none leaves it while it
// lives. A zygote is the reaper of its workers: what a dead worker leaves behind becomes the
// zygote's child, and is ended by it. Where there is no zygote (fork, spawn), or it was killed
// itself, the launcher's process ends what is left of the workers' sessions; a process that has
// made a session of its own escapes it then, and then only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace shoal::process {

/// For what cleans up after itself when its worker is gone (Python's resource tracker does): so
/// long it is left alone.
inline constexpr std::chrono::milliseconds kOrphanGrace{200};

/// In a worker, before its entry.
void lead_own_session() noexcept;

/// In a zygote: what its workers leave behind becomes its child.
void adopt_orphans() noexcept;

/// The children of this process, ended ones that nobody has collected included.
/// Async-signal-unsafe; some tens of microseconds.
std::vector<pid_t> children_of_this_process();

/// Kills every process of these sessions. A session whose leader has ended keeps its number as long
/// as somebody is in it. Costs a look at every process of the machine.
void end_sessions(const std::vector<pid_t>& sessions);

}  // namespace shoal::process
