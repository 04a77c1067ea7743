// Steps a stepper's environments so that one that fails does not take the others along.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shoal/process/error_report.h"
#include "shoal/vector/fault/fault_policy.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

/// Obeys one reset or step of a stepper, row by row where the rows' orders say so.
///
/// When it is tolerant and the stepper can replace single environments, an environment that throws
/// is discarded, with its row's observation zeroed where it was half written, and reported; the
/// others go on. Its row's flags are left to the caller's side. Otherwise the exception comes out.
/// A divisible stepper is then called for one environment at a time: of more, nobody knows who threw.
///
/// Threads: one at a time.
/// Processes, death: the stepper's own, and ends with it.
class FaultGuard {
 public:
  /// Describes the exception that is being handled; called inside a catch block.
  using Describe = std::function<process::ErrorReport()>;

  FaultGuard() = default;
  FaultGuard(Stepper& stepper, const Rows& rows, int lo, EnvMarker marker, bool tolerant,
             Describe describe)
      : stepper_(&stepper),
        rows_(rows),
        lo_(lo),
        marker_(marker),
        tolerant_(tolerant && stepper.can_rebuild()),
        one_by_one_(tolerant_ && stepper.divisible()),
        describe_(std::move(describe)) {}

  /// As the stepper's.
  void select_obs(int set) {
    stepper_->select_obs(set);
    rows_.select_obs(set);
  }

  /// `has_orders`: some row's order may be another than RowOrder::kObey.
  void reset(bool has_orders) { run(true, has_orders); }
  void step(bool has_orders) { run(false, has_orders); }

  /// For an exception that is being handled, of a reset or step of environments [lo, hi) of the
  /// stepper: lets the one go whose it is, and reports it. Returns which; -1 where nothing can be
  /// done, or nobody knows whose it is.
  int contain(int lo, int hi);
  /// The report of who was let go last, which is then forgotten.
  process::ErrorReport take_report();

  /// Whether the stepper has to be called for one environment at a time.
  bool one_by_one() const noexcept { return one_by_one_; }

  /// Of the environments that failed in the last reset or step.
  std::span<const process::ErrorReport> reports() const noexcept { return reports_; }

 private:
  void run(bool reset, bool has_orders);
  int run_range(bool reset, int lo, int hi);
  void renew(bool reset, int i);
  RowOrder order(int i) const {
    return static_cast<RowOrder>(rows_.order[static_cast<std::size_t>(lo_ + i)]);
  }

  Stepper* stepper_ = nullptr;
  Rows rows_;
  int lo_ = 0;
  EnvMarker marker_;
  bool tolerant_ = false;
  bool one_by_one_ = false;
  Describe describe_;
  std::vector<process::ErrorReport> reports_;
};

}  // namespace shoal::vector
