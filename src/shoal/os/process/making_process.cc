#include "shoal/os/process/making_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include "shoal/os/error.h"

namespace shoal::os {

MakingProcess::MakingProcess() noexcept : pid_(::getpid()) {}

bool MakingProcess::is_this() const noexcept { return ::getpid() == pid_; }

void MakingProcess::require(const std::string& what) const {
  if (is_this()) return;
  throw InvalidState(fmt::format(
      "{} belongs to process {} and cannot be used in its forked child {}; make a new one here",
      what, pid_, ::getpid()));
}

}  // namespace shoal::os
