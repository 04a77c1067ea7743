// What a worker does from its hello to its end: it obeys the commands that the parent leaves in the
// control block.
//
// The same body runs in a process (the usual case) and, in tests, in a thread of the parent.
//
//   worker                                   parent (ProcessVectorEnv)
//   build environments, send HELLO  ──────▶  check that the spaces agree, make the arena
//   receive ATTACH, map the arena   ◀──────  send it
//   wait on the doorbell            ◀──────  write actions, command word, ring
//   step, write rows, arrive        ──────▶  wait on the gather
#pragma once

#include <functional>

#include "shoal/process/channel.h"
#include "shoal/process/error_report.h"
#include "shoal/vector/stepper.h"

namespace shoal::vector {

/// What a binding adds to the loop. Empty members are skipped.
struct WorkerHooks {
  /// Called around a wait that goes to the kernel, not around a short spin: the binding gives the
  /// GIL back, so that other threads of the environments run.
  std::function<void()> before_park;
  std::function<void()> after_park;

  /// Describes the exception that is being handled (called inside a catch block). Empty: type and
  /// what().
  std::function<process::ErrorReport()> describe_exception;
};

/// Serves `stepper` over `channel`, this process's end of its channel to the parent. Returns when
/// the parent says close or is gone.
///
/// An exception of the stepper's reset(), step() or request() is sent to the parent as an error
/// report and the loop goes on; the parent decides what follows. Throws what attaching throws.
void run_worker(process::Channel& channel, Stepper& stepper, const WorkerHooks& hooks = {});

}  // namespace shoal::vector
