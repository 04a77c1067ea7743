// A process that notices the death of its parent, and has a while to do something about it.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace shoal::process {

/// How long a plain process (LaunchOptions::plain) outlives its parent.
inline constexpr std::chrono::milliseconds kParentGrace{5'000};

/// SIGKILL ends this process when `grace` has passed since the death of `parent`, whichever thread
/// of it started this one, and whenever that thread ends. No thread is needed for it: the kernel
/// sends parent_death_signal(), and its handler sets a timer.
///
/// Threads: once, before others exist.
/// Fork: a child is not watched.
/// Exec: the new program is ended at once instead.
void end_after_parent(pid_t parent, std::chrono::milliseconds grace) noexcept;

/// For a worker that is a child of its launcher's process (fork, spawn): when `parent` has died,
/// whichever thread of it started this one, what this process has started has kOrphanGrace to end
/// by itself, with every descriptor of this process closed for it to see that, and is killed; then
/// this process is. No thread is needed for it, and a process that was stopped goes on for it: the
/// kernel sends SIGCONT, and its handler does the rest. A program that sets a handler of its own
/// for SIGCONT is not ended.
///
/// Under ThreadSanitizer a thread does it.
///
/// Threads: once, before others exist; the others go on while the handler waits. It is to be the
/// reaper of its descendants (lead_own_session()): then those that made sessions of their own are
/// found as well. Fork, exec: the children are not watched.
void end_family_after_parent(pid_t parent) noexcept;

/// From here on the parent's death is a SIGINT, too, at once.
void interrupt_after_parent() noexcept;

/// A real-time one, which programs do not use.
int parent_death_signal() noexcept;

}  // namespace shoal::process
