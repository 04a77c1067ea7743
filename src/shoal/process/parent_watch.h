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
/// Threads: once, before others exist. Fork: a child is not watched. Exec: the new program is ended
/// at once instead.
void end_after_parent(pid_t parent, std::chrono::milliseconds grace) noexcept;

/// From here on the parent's death is a SIGINT, too, at once.
void interrupt_after_parent() noexcept;

/// A real-time one, which programs do not use.
int parent_death_signal() noexcept;

}  // namespace shoal::process
