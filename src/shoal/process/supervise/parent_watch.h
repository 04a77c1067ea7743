// How a process notices that its parent has died, and what it does then.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace shoal::process {

/// How long a plain process (LaunchOptions::plain) outlives its parent.
inline constexpr std::chrono::milliseconds kParentGrace{5'000};

/// Has this process killed `grace` after the death of `parent`. Neither which thread of `parent`
/// started this process nor when that thread ends matters. It needs no thread: the kernel sends
/// parent_death_signal(), and its handler sets a timer.
///
/// Threads: once, before others exist.
/// Fork: a child is not watched.
/// Exec: the new program is ended at once instead.
void end_after_parent(pid_t parent, std::chrono::milliseconds grace) noexcept;

/// For a worker that is a child of its launcher's process (fork, spawn). When `parent` has died,
/// this process closes all its descriptors, which shows the processes that it has started that it
/// ends. They have kOrphanGrace to end by themselves, then they are killed, then this process is.
/// It needs no thread, and a stopped process is ended as well: the kernel sends SIGCONT, and its
/// handler does the rest. (Under ThreadSanitizer a thread does it.) A program that sets its own
/// handler for SIGCONT is not ended.
///
/// Threads: to be called once, before others exist; they go on while the handler waits.
/// Processes: this one should be the reaper of its descendants (lead_own_session()): then those
/// that made sessions of their own are ended as well.
/// Fork, exec: the children are not watched.
void end_family_after_parent(pid_t parent) noexcept;

/// From here on this process also gets a SIGINT as soon as its parent has died.
void interrupt_after_parent() noexcept;

/// A real-time signal, which programs do not use.
int parent_death_signal() noexcept;

}  // namespace shoal::process
