#include "shoal/vector/step/fault_guard.h"

#include <cstring>
#include <utility>

namespace shoal::vector {

void FaultGuard::run(bool reset, bool has_orders) {
  if (!reports_.empty()) reports_.clear();
  if (reset) {
    stepper_->begin_reset();
  } else {
    stepper_->begin_step();
  }
  const int n = stepper_->count();
  for (int i = 0; i < n;) {
    if (!has_orders) {
      i = run_range(reset, i, n);
      continue;
    }
    const RowOrder wanted = order(i);
    if (wanted != RowOrder::kObey) {
      if (wanted != RowOrder::kSkip) renew(reset, i);
      ++i;
      continue;
    }
    int end = i + 1;
    while (end < n && order(end) == RowOrder::kObey) ++end;
    i = run_range(reset, i, end);
  }
}

// Returns where to go on: after the range, or after the environment that failed.
int FaultGuard::run_range(bool reset, int lo, int hi) {
  if (one_by_one_) hi = lo + 1;
  try {
    if (reset) {
      stepper_->reset_range(lo, hi);
    } else {
      stepper_->step_range(lo, hi);
    }
    return hi;
  } catch (...) {
    const int failed = contain(lo, hi);
    if (failed < 0) throw;
    return failed + 1;
  }
}

void FaultGuard::renew(bool reset, int i) {
  const auto row = static_cast<std::size_t>(lo_ + i);
  marker_.resetting(lo_ + i);
  try {
    if (order(i) == RowOrder::kRebuild) stepper_->rebuild(i);
    stepper_->reset_range(i, i + 1);
    if (!reset) rows_.reset[row] = 1;
  } catch (...) {
    if (contain(i, i + 1) < 0) throw;
  }
}

int FaultGuard::contain(int lo, int hi) {
  const std::int32_t word = marker_.word();
  const int row = EnvMarker::blamed(word);
  if (!tolerant_ || row < lo_ + lo || row >= lo_ + hi) return -1;
  process::ErrorReport report = describe_();
  report.env_index = row;
  stepper_->complete(row - lo_, report);
  reports_.push_back(std::move(report));
  if (EnvMarker::torn(word, row)) {
    for (const shm::TensorView& leaf : rows_.obs) {
      std::memset(leaf.row_data(row), 0, leaf.row_bytes());
    }
  }
  stepper_->discard(row - lo_);
  return row - lo_;
}

process::ErrorReport FaultGuard::take_report() {
  process::ErrorReport report = std::move(reports_.back());
  reports_.pop_back();
  return report;
}

}  // namespace shoal::vector
