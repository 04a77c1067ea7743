// Which rows are in order and which are not, and what the policy makes of the next fault.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/vector/fault/fault_policy.h"
#include "shoal/vector/fault/fault_record.h"

namespace shoal::vector {

/// Keeps the book of a vector environment's faults, for kRestart and kDrop. A row is live, down
/// until due(), or dropped for ever.
///
/// Threads: one at a time.
/// Processes, death: the caller's own, and ends with it.
class FaultLedger {
 public:
  FaultLedger() = default;
  FaultLedger(const FaultPolicy& policy, int num_envs);

  /// Takes the fault down: its rows [first_env, first_env + num_envs) are down from now on, or
  /// dropped. Fills in number and restarts. Records with one cause (workers that ended with their
  /// zygote) are one fault: it has one number and counts once. Throws TooManyFaults where the
  /// policy's limit is passed or no row is left; the fault is taken down all the same.
  Fault admit(FaultRecord record);

  /// The new environment of a row that is down stands, and has only to begin an episode.
  void stand(int row);
  bool stands(int row) const { return at(row).stands; }
  /// The row has an environment again, within an episode.
  void back(int row);
  /// A live row is down without a fault, until resume() or back().
  void mark_drained(int row);
  void resume(int row);
  bool drained(int row) const { return at(row).drained; }

  bool live(int row) const { return at(row).state == RowFault::kNone; }
  bool dropped(int row) const { return at(row).state == RowFault::kDropped; }
  /// kNone, kDown or kDropped.
  RowFault state(int row) const { return at(row).state; }
  /// When a new environment may take the place of one that is down.
  os::Deadline due(int row) const { return at(row).due; }
  /// How often the row has had a new environment.
  int restarts(int row) const { return at(row).restarts; }

  /// Whether some row is not live.
  bool impaired() const noexcept { return not_live_ > 0; }

  std::uint64_t count(FaultKind kind) const { return counts_[static_cast<std::size_t>(kind)]; }

 private:
  struct Row {
    RowFault state = RowFault::kNone;
    bool drained = false;
    bool stands = false;
    os::Deadline due{};
    os::Deadline last_fault{};
    int strikes = 0;  // faults in a row, none longer than the window before the next
    int restarts = 0;
  };
  const Row& at(int row) const { return rows_[static_cast<std::size_t>(row)]; }
  void set_state(Row& row, RowFault state);
  std::chrono::milliseconds delay_after(int strikes) const;
  bool is_new(const FaultRecord& record);
  void note(const Fault& fault, bool is_new, os::Deadline now);
  void enforce() const;

  FaultPolicy policy_;
  std::vector<Row> rows_;
  int not_live_ = 0;
  int dropped_ = 0;
  std::uint64_t total_ = 0;
  std::array<std::uint64_t, kFaultKinds> counts_{};
  std::deque<os::Deadline> recent_;  // kRestart: when there were faults, within the window
  std::deque<Fault> last_;           // the last ones, for the error that may come
  std::shared_ptr<const process::ZygoteEnd> cause_;  // of the last fault that had one
  std::uint64_t number_of_cause_ = 0;
};

}  // namespace shoal::vector
