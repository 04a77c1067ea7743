// How worker processes are started.
#pragma once

#include <cstdint>
#include <string_view>

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

}  // namespace shoal::process
