// What a worker process does from its start to its end: it serves the environments of every session
// that its pool opens in it. In a pool of rounds there is one session, which the worker opens by
// itself as soon as it has joined.
//
//   worker                                   pool, session
//   receive JOIN, map the door      ◀──────  send it
//   build environments, send HELLO  ──────▶  check that the spaces agree, make the segment
//   receive ATTACH, map the segment ◀──────  send it
//   wait at the bell                ◀──────  leave orders or a command, ring
//   step, deliver, arrive           ──────▶  wait at a gather
//
// The same body runs in a process (the usual case) and, in tests, in a thread of the parent.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "shoal/process/channel.h"
#include "shoal/process/error_report.h"
#include "shoal/process/identity/identity.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

/// What a binding adds to the loop. Empty members are skipped.
struct PoolWorkerHooks {
  struct Opened {
    std::unique_ptr<Stepper> stepper;
    /// Describes the exception that is being handled; may be empty.
    std::function<process::ErrorReport()> describe_exception;
    std::function<void(const char* point)> pass;  // as AsyncWorkerHooks::pass
  };
  /// Builds `count` environments, the first of which is `first_env`, from a session's payload,
  /// which is empty in a pool of rounds. What it throws is reported with describe_opening(); in a
  /// pool of rounds it ends the worker, whose entry reports it.
  std::function<Opened(std::span<const std::byte> payload, int first_env, int count)> open;
  std::function<process::ErrorReport()> describe_opening;
  /// Called around a wait that goes to the kernel, not around a short spin: the binding gives the
  /// GIL back, so that other threads of the environments run.
  std::function<void()> before_park;
  std::function<void()> after_park;
};

/// Serves as worker `identity` until the pool closes the channel or is gone. Throws what attaching
/// throws.
void run_pool_worker(process::Channel& channel, const process::Identity& identity,
                     const PoolWorkerHooks& hooks);

}  // namespace shoal::vector
