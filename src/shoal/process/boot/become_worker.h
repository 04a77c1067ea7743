// What a process does from its start until its entry runs, and after its entry.
//
// Threads: the process has one.
// Processes: the worker's own.
#pragma once

#include <sys/types.h>

#include <string>

#include "shoal/os/fd.h"
#include "shoal/process/boot/wire.h"
#include "shoal/process/entry.h"

namespace shoal::process {

/// Has the kernel kill this process when the thread that started it ends. That thread is a zygote's
/// only one or an EventLoop's, which ends with its process. Ends this process at once when `parent`
/// is gone already.
void die_with_parent(pid_t parent) noexcept;

/// Makes `output` and `errors` this process's stdout and stderr, and /dev/null its stdin.
void redirect_output(os::Fd output, os::Fd errors);

/// The context of the worker of this request, without its channel.
WorkerContext worker_context(const wire::Start& start, bool hide_gpu);

/// Runs the entry and ends the process with its exit code. It ends by _exit(), so exit handlers and
/// destructors that the process inherited are not run. A failure goes to the parent as an
/// ErrorReport. `plain` as in LaunchOptions.
[[noreturn]] void become_worker(const EntryTable& entries, const std::string& entry,
                                WorkerContext context, bool plain = false) noexcept;

}  // namespace shoal::process
