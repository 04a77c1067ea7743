#include "shoal/vector/fault/fault_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shoal::vector {
namespace {

// So many are kept for the error that may come: each may have a long traceback.
constexpr std::size_t kMostKept = 64;

}  // namespace

FaultLedger::FaultLedger(const FaultPolicy& policy, int num_envs)
    : policy_(policy), rows_(static_cast<std::size_t>(num_envs)) {}

Fault FaultLedger::admit(FaultRecord record) {
  const os::Deadline now = os::Clock::now();
  const bool fresh = is_new(record);
  if (fresh) ++counts_[static_cast<std::size_t>(record.kind)];
  record.number = fresh ? ++total_ : number_of_cause_;
  if (record.cause) number_of_cause_ = record.number;
  for (int i = record.first_env; i < record.first_env + record.num_envs; ++i) {
    Row& row = rows_[static_cast<std::size_t>(i)];
    record.restarts = std::max(record.restarts, row.restarts);
    if (row.state == RowFault::kDropped) continue;
    row.drained = row.stands = false;
    if (policy_.on_fault == OnFault::kDrop) {
      set_state(row, RowFault::kDropped);
      continue;
    }
    const bool again = row.strikes > 0 && now - row.last_fault <= policy_.restart_window;
    row.strikes = again ? row.strikes + 1 : 1;
    row.last_fault = now;
    row.due = now + delay_after(row.strikes);
    set_state(row, RowFault::kDown);
  }
  auto fault = std::make_shared<const FaultRecord>(std::move(record));
  note(fault, fresh, now);
  enforce();
  return fault;
}

// A zygote takes all its workers along before the next one is there: their records follow one
// another.
bool FaultLedger::is_new(const FaultRecord& record) {
  if (!record.cause) return true;
  return std::exchange(cause_, record.cause) != record.cause;
}

void FaultLedger::note(const Fault& fault, bool is_new, os::Deadline now) {
  while (!recent_.empty() && now - recent_.front() > policy_.restart_window) recent_.pop_front();
  if (!is_new) {
    const auto same = [&](const Fault& other) { return other->cause == fault->cause; };
    std::ranges::replace_if(last_, same, fault);
    return;
  }
  recent_.push_back(now);
  last_.push_back(fault);
  const std::size_t kept =
      policy_.on_fault == OnFault::kDrop ? kMostKept : std::min(kMostKept, recent_.size());
  while (last_.size() > kept) last_.pop_front();
}

void FaultLedger::enforce() const {
  if (dropped_ == static_cast<int>(rows_.size())) {
    throw TooManyFaults("every environment has been dropped:", {last_.begin(), last_.end()});
  }
  if (policy_.on_fault == OnFault::kDrop) return;
  if (recent_.size() > static_cast<std::size_t>(policy_.max_restarts)) {
    throw TooManyFaults(
        fmt::format(
            "fault number {} within {:g} s, of which max_restarts={} are forgiven:", recent_.size(),
            std::chrono::duration<double>(policy_.restart_window).count(), policy_.max_restarts),
        {last_.begin(), last_.end()});
  }
}

void FaultLedger::stand(int i) {
  Row& row = rows_[static_cast<std::size_t>(i)];
  row.stands = row.state == RowFault::kDown;
}

void FaultLedger::back(int i) {
  Row& row = rows_[static_cast<std::size_t>(i)];
  if (row.state != RowFault::kDown) return;
  row.stands = false;
  set_state(row, RowFault::kNone);
  if (!std::exchange(row.drained, false)) ++row.restarts;
}

void FaultLedger::mark_drained(int i) {
  Row& row = rows_[static_cast<std::size_t>(i)];
  if (row.state != RowFault::kNone) return;
  row.due = {};
  row.drained = true;
  set_state(row, RowFault::kDown);
}

void FaultLedger::resume(int i) {
  Row& row = rows_[static_cast<std::size_t>(i)];
  if (!std::exchange(row.drained, false)) return;
  set_state(row, RowFault::kNone);
}

void FaultLedger::set_state(Row& row, RowFault state) {
  not_live_ += (state != RowFault::kNone) - (row.state != RowFault::kNone);
  dropped_ += (state == RowFault::kDropped) - (row.state == RowFault::kDropped);
  row.state = state;
}

std::chrono::milliseconds FaultLedger::delay_after(int strikes) const {
  if (strikes <= 1) return std::chrono::milliseconds{0};
  const int doublings = std::min(strikes - 2, 30);
  const std::int64_t delay = policy_.backoff.count() << doublings;
  return std::min(std::chrono::milliseconds{delay}, policy_.max_backoff);
}

}  // namespace shoal::vector
