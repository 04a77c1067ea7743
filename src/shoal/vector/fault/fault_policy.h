// What becomes of an environment that dies, hangs or fails, and how long it may take.
#pragma once

#include <chrono>
#include <cstdint>

namespace shoal::vector {

/// What a fault does to the caller. A fault is the death, the hang or the failure of an environment
/// or of its worker; its rows end as truncated, with reward 0 and RowFault::kFault.
enum class OnFault : std::uint8_t {
  kRaise,    // the call throws; the environments are of no more use
  kRestart,  // the call goes on; new environments take over
  kDrop,     // the call goes on; the rows stay invalid for ever
};

/// A value. Timeouts of 0 are none.
struct FaultPolicy {
  OnFault on_fault = OnFault::kRaise;

  /// kRestart: more faults than these within the window throw TooManyFaults.
  int max_restarts = 3;
  std::chrono::milliseconds restart_window{60'000};

  /// kRestart: the first restart of a place within the window is at once, the second waits this
  /// long, each further one twice as long as the one before. Meanwhile its rows are down and the
  /// other environments go on.
  std::chrono::milliseconds backoff{100};
  std::chrono::milliseconds max_backoff{10'000};

  /// Until a worker has built its environments.
  std::chrono::milliseconds start_timeout{60'000};
  /// For one environment's reset, and for one environment's step; a worker whose environment takes
  /// longer is killed. Kept while the caller waits, to within 50 ms.
  std::chrono::milliseconds reset_timeout{0};
  std::chrono::milliseconds step_timeout{0};
};

/// Why a row is no transition: Rows::fault and Batch::fault.
enum class RowFault : std::uint8_t {
  kNone = 0,     // it is one
  kFault = 1,    // its environment was lost in this call
  kDown = 2,     // its environment is not back yet
  kDropped = 3,  // its environment will not come back
};

/// What the caller's side wants of a row beside the command: Rows::order.
enum class RowOrder : std::uint8_t {
  kObey = 0,     // as the command says
  kSkip = 1,     // leave it alone
  kRebuild = 2,  // make a new environment and reset it, with the row's seed where it has one
  kRenew = 3,    // reset it so: it is a new environment
};

}  // namespace shoal::vector
