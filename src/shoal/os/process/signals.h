// Signals by name, blocked for a while, and as something poll() can wait for.
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>
#include <string>

#include "shoal/os/fd.h"

namespace shoal::os {

/// "SIGKILL"; "signal 77" for a number without a name.
std::string signal_name(int signal);

/// Blocks signals in the calling thread for as long as it lives; the mask of before is restored.
class BlockSignals {
 public:
  explicit BlockSignals(std::initializer_list<int> signals);
  /// Blocks every signal that can be blocked.
  static BlockSignals all();
  ~BlockSignals();
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  explicit BlockSignals(const sigset_t& set);
  sigset_t before_;
};

/// Arrivals of signals as a descriptor; a resource. The signals must be blocked in every thread of
/// the process.
class SignalFd {
 public:
  explicit SignalFd(std::initializer_list<int> signals);

  /// The next signal that arrived, or nothing; never blocks.
  std::optional<int> read();

  int fd() const noexcept { return fd_.get(); }

 private:
  Fd fd_;
};

}  // namespace shoal::os
