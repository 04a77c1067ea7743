// The stack of a worker that does not answer, written by a signal handler in that worker.
#pragma once

#include <chrono>
#include <string>

#include "shoal/process/launcher.h"

namespace shoal::process {

/// Makes this process ready to be asked. A handler of stack_signal() writes the stacks into a
/// memfd, whatever the process is busy with and whatever locks are held. Where `native` is set it
/// writes the native stack. A language's own handler, installed over this one, writes to the
/// returned descriptor and then calls this one, which marks the end.
///
/// Returns the descriptor; -1 where it cannot be had, as outside a process's main thread.
/// Idempotent.
/// Fork: a child has the same handler and descriptor.
int install_stack_dump(bool native) noexcept;

/// The signal that asks: a real-time signal, which environments do not use.
int stack_signal() noexcept;

/// Asks a worker, in which install_stack_dump() was called, and waits for the end of its answer, at
/// most `timeout`. Returns what the worker has written by then; where that is nothing, the reason
/// in parentheses.
std::string ask_for_stack(WorkerProcess& worker, std::chrono::milliseconds timeout);

}  // namespace shoal::process
