// The first message to a worker: what it shares with its group, and how large the group is.
//
//   parent -> worker   u32 magic "SHWL", i32 number of workers; two descriptors: the shared
//                      state, the port order
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "shoal/process/entry.h"
#include "shoal/process/identity/identity.h"
#include "shoal/process/identity/shared_state.h"
#include "shoal/process/launcher.h"

namespace shoal::process {

/// Sends it. That the worker is gone is not told here, but as any death is.
void send_welcome(WorkerProcess& worker, const SharedState& shared_state, int num_workers);

/// Receives it; returns the identity of this worker, or nothing when the parent is gone or wants
/// the worker to end. From here on this process leases ports in the order of its parent's program.
/// Throws Error for another message.
std::optional<Identity> receive_welcome(WorkerContext& context);

bool is_welcome(std::span<const std::byte> message) noexcept;

/// Receives the first message after it, for a worker that may not have received it.
os::RecvOutcome recv_past_welcome(Channel& channel, os::Message& message);

}  // namespace shoal::process
