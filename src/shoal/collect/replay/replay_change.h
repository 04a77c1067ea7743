// A member's stay behind the gate while it changes priorities; for Replay's own source files.
#pragma once

#include <cstdint>

#include "shoal/collect/replay/replay.h"

namespace shoal::collect {

/// Priority 1 in units of the tree.
inline constexpr std::uint64_t kReplayOne = std::uint64_t{1} << 32;

/// Waits while somebody repairs, and repairs in place of one who has died at it.
class Replay::Change {
 public:
  explicit Change(Replay& replay);
  ~Change() { replay_.gate_->leave(replay_.me_); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  Replay& replay_;
};

}  // namespace shoal::collect
