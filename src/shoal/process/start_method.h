// How worker processes are started, and when fork is known to break.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::process {

enum class StartMethod : std::uint8_t {
  kAuto,        // forkserver
  kFork,        // fork of this very process
  kForkserver,  // fork of a zygote: a fresh, exec'd, single-threaded process
  kSpawn,       // a fresh interpreter for each worker
};

/// "auto", "fork", "forkserver", "spawn". Throws InvalidArgument naming the four for anything else.
StartMethod start_method_from_name(std::string_view name);
std::string_view name(StartMethod method) noexcept;

/// fork() was asked for where it is known to break (Python: RuntimeError). The text names the
/// causes and the way out.
class ForkRefused : public Error {
 public:
  using Error::Error;
};

/// Why forking this process is unsafe, one sentence each; empty when nothing is known against it:
/// CUDA is initialised or a GPU device is open, threads other than the caller's and Shoal's own
/// (own_thread.h) are alive, an MPI, NCCL or ibverbs library is loaded.
///
/// OpenBLAS's idle threads do not count: it stops them itself before every fork, and this call does
/// so too.
/// `threads`: count those, too.
std::vector<std::string> fork_hazards(bool threads = true);

}  // namespace shoal::process
