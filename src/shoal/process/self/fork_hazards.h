// When fork is known to break.
#pragma once

#include <string>
#include <vector>

namespace shoal::process {

/// Why forking this process is unsafe, one sentence each; empty when nothing is known against it:
/// CUDA is initialised or a GPU device is open, threads other than the caller's and Shoal's own
/// (own_thread.h) are alive, an MPI or ibverbs library is loaded, something of Shoal's own is
/// against it (no_fork.h).
///
/// NCCL and RCCL, which torch's builds for GPUs load with themselves, count when they are used: they
/// have initialised CUDA, opened a device or started threads by then.
///
/// OpenBLAS's idle threads do not count: it stops them itself before every fork, and this call does
/// so too.
/// `threads`: count those, too.
std::vector<std::string> fork_hazards(bool threads = true);

}  // namespace shoal::process
