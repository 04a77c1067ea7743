// What a process does between being started and running its entry, and after it.
#pragma once

#include <sys/types.h>

#include <string>

#include "shoal/os/fd.h"
#include "shoal/process/entry.h"
#include "shoal/process/wire.h"

namespace shoal::process {

/// The kernel kills this process when the thread that started it ends, which for a single-threaded
/// zygote and for an EventLoop means: when that process ends. Ends at once when `parent` is gone
/// already.
void die_with_parent(pid_t parent) noexcept;

/// Makes `output` and `errors` this process's stdout and stderr, and /dev/null its stdin.
void redirect_output(os::Fd output, os::Fd errors);

/// What the worker of this request is given, but for the channel.
WorkerContext worker_context(const wire::Start& start, bool hide_gpu);

/// Runs the entry and ends the process with its exit code, by _exit: what the process inherited
/// (exit handlers, destructors of its parent's objects) is not run. A failure goes to the parent as
/// an ErrorReport. `plain` as in LaunchOptions.
[[noreturn]] void become_worker(const EntryTable& entries, const std::string& entry,
                                WorkerContext context, bool plain = false) noexcept;

}  // namespace shoal::process
