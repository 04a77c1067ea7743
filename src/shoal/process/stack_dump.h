// Where a process is that does not answer: its stack, told from a signal handler.
#pragma once

#include <chrono>
#include <string>

#include "shoal/process/launcher.h"

namespace shoal::process {

/// Makes this process ready to be asked. A memfd of its own takes the stacks; a handler of
/// stack_signal() writes there, whatever the process is busy with, and whoever holds which lock.
/// The handler writes the native stack where `native` is set; a language's own handler, installed
/// on top, writes to the returned descriptor and then calls this one, which marks the end.
///
/// Returns the descriptor, -1 where there is none to be had, as outside a process's main thread.
/// Idempotent.
/// Fork: a child has the same handler and descriptor.
int install_stack_dump(bool native) noexcept;

/// The signal that asks. A real-time one, which environments do not use.
int stack_signal() noexcept;

/// Asks a worker that install_stack_dump() was called in, and waits for the end of its answer, at
/// most `timeout`. A worker that cannot answer, or dies meanwhile, gives what it told so far, or
/// the reason in parentheses.
std::string ask_for_stack(WorkerProcess& worker, std::chrono::milliseconds timeout);

}  // namespace shoal::process
