// ProcessEngine: what becomes of rows and seats when a worker dies, hangs or fails.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "shoal/process/stack_dump.h"
#include "shoal/vector/process_engine.h"

namespace shoal::vector {
namespace {

// For a hung worker to tell its stack.
constexpr std::chrono::milliseconds kStackTimeout{1000};

}  // namespace

// Handles the deaths since the last look: those of workers that had nothing to do.
void ProcessEngine::look_for_deaths() {
  const std::uint64_t exits = exits_->load(std::memory_order_acquire);  // [exits]
  if (exits == exits_seen_) return;
  for (WorkerSeat& seat : seats_) {
    if (seat.attached() && seat.dead()) {
      handle_death(seat, process::DeathCertificate::of(seat.process()));
    }
  }
  exits_seen_ = exits;
}

// Handles the deaths of workers that have not finished; true when nobody is left to wait for.
bool ProcessEngine::settle_dead_workers() {
  bool all_settled = true;
  for (WorkerSeat& seat : seats_) {
    if (seat.command == Command::kNone || seat.owes_fault) continue;
    const bool dead =
        seat.dead();  // before the look at `done`, which a dead worker no longer changes
    if (!busy(seat)) continue;
    if (!dead) {
      all_settled = false;
      continue;
    }
    control_.gather().arrive(
        static_cast<std::uint32_t>(sequence_));  // in its stead: it did not get there
    handle_death(seat, process::DeathCertificate::of(seat.process()));
  }
  return all_settled;
}

// Ends the workers whose environment has passed its deadline; their deaths are handled as any.
void ProcessEngine::look_for_hangs() {
  const FaultPolicy& policy = options_.faults;
  if (policy.reset_timeout.count() <= 0 && policy.step_timeout.count() <= 0) return;
  for (WorkerSeat& seat : seats_) {
    if (seat.command == Command::kNone || seat.owes_fault || !busy(seat)) continue;
    const WorkerCell& cell = cell_of(seat);
    const std::int32_t word = cell.env_now.load(std::memory_order_acquire);  // [marker]
    const std::uint64_t since = cell.env_since.load(std::memory_order_relaxed);
    const bool in_reset = EnvMarker::in_reset(word) || seat.command == Command::kReset;
    const auto limit = in_reset ? policy.reset_timeout : policy.step_timeout;
    if (limit.count() <= 0) continue;
    const std::uint64_t now = os::now_ns();
    const std::uint64_t start = std::max(since, posted_ns_);  // it may sleep since the last call
    if (now < start + static_cast<std::uint64_t>(std::chrono::nanoseconds(limit).count())) continue;
    end_hung(seat, EnvMarker::blamed(word), in_reset, limit);
  }
}

void ProcessEngine::end_hung(WorkerSeat& seat, int env, bool in_reset,
                             std::chrono::milliseconds limit) {
  health_.change(seat.index(), [](WorkerHealth& health) { health.state = WorkerState::kHung; });
  seat.killed = KillReason::hang(env, seat.first_env(), seat.num_envs(), in_reset, limit);
  seat.killed->stack = process::ask_for_stack(seat.process(), kStackTimeout);
  seat.process().kill(SIGKILL);
  static_cast<void>(seat.process().join(kStackTimeout));
}

// Throws for kRaise, and when the policy forgives no more; else the seat owes a fault.
void ProcessEngine::handle_death(WorkerSeat& seat, process::DeathCertificate certificate) {
  const FaultRecord record = record_of(seat, certificate);
  if (options_.faults.on_fault == OnFault::kRaise) {
    health_.count_fault(seat.index(), std::make_shared<const FaultRecord>(record));
    complete(certificate, record, seat.killed ? &*seat.killed : nullptr);
    state_.fail(fmt::format("{} died ({})", seat.describe(), certificate.status.describe()));
    throw process::WorkerDied(std::move(certificate));
  }
  lose_seat(seat, record);
}

FaultRecord ProcessEngine::record_of(const WorkerSeat& seat,
                                     const process::DeathCertificate& certificate) {
  // Who has not been attached has left no mark.
  const int env = seat.attached()
                      ? EnvMarker::blamed(cell_of(seat).env_now.load(std::memory_order_relaxed))
                      : EnvMarker::kNone;
  return account_of_death(seat.scene(), certificate, env, seat.killed ? &*seat.killed : nullptr,
                          oom_evidence_);
}

// Takes a fault down. Throws TooManyFaults.
Fault ProcessEngine::admit(FaultRecord record) {
  const int worker = record.worker;
  const std::string message = record.message;
  try {
    Fault fault = ledger_.admit(std::move(record));
    health_.count_fault(worker, fault);
    return fault;
  } catch (const TooManyFaults& error) {
    const std::string text = error.what();
    state_.fail(fmt::format("{} {}", text.substr(0, text.find('\n')), message));
    health_.count_fault(worker, error.faults().back());
    throw;
  }
}

// The worker is gone: its rows end as a fault in the call under way, or in the next one.
void ProcessEngine::lose_seat(WorkerSeat& seat, FaultRecord record) {
  if (seat.attached()) wipe_torn_rows(seat);
  seat.fault = admit(std::move(record));
  seat.owes_fault = true;
  seat.has_orders = false;
  seat.successor.reset();
  seat.draining = false;
  seat.killed.reset();
  seat.vacate();
  const bool for_good = gone_for_good(seat);
  health_.change(seat.index(), [&](WorkerHealth& health) {
    health.pid = 0;
    health.state = for_good ? WorkerState::kDropped : WorkerState::kRestarting;
  });
}

// Zeros where a dead worker was writing an observation. The last one comes in its stead where that
// is in another place (end_row).
void ProcessEngine::wipe_torn_rows(const WorkerSeat& seat) {
  const std::int32_t marker =
      cell_of(seat).env_now.load(std::memory_order_relaxed);  // relaxed: it is dead
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    if (!EnvMarker::torn(marker, row)) continue;
    for (const shm::TensorView& leaf : rows_.obs)
      std::memset(leaf.row_data(row), 0, leaf.row_bytes());
  }
}

void ProcessEngine::end_rows_as_fault(WorkerSeat& seat) {
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    end_row(row, RowFault::kFault);
    faults_.push_back({row, seat.fault});
  }
  seat.owes_fault = false;
  seat.fault.reset();
  seat.command = Command::kNone;  // it has no info
}

// Environments of a worker failed, and it goes on with the others.
void ProcessEngine::lose_rows(WorkerSeat& seat) {
  for (process::ErrorReport& report :
       decode_reports(next_of_kind(seat, MessageKind::kFaults).bytes)) {
    const int row = report.env_index;
    const Fault fault = admit(account_of_failure(seat.scene(), std::move(report)));
    end_row(row, RowFault::kFault);
    faults_.push_back({row, fault});
  }
  seat.has_orders = true;
}

// Writes a row that is no transition, with the last observation.
void ProcessEngine::end_row(int row, RowFault why) {
  const auto at = static_cast<std::size_t>(row);
  rows_.reward[at] = 0;
  rows_.terminated[at] = 0;
  rows_.truncated[at] = 1;
  rows_.reset[at] = 0;
  rows_.has_final[at] = 0;
  rows_.fault[at] = static_cast<std::uint8_t>(why);
  rows_.carry_over(row);
  rows_have_faults_ = true;
}

void ProcessEngine::mark_rows_that_are_not_live() {
  for (int row = 0; row < rows_.num_envs; ++row) {
    if (ledger_.live(row) || rows_.fault[static_cast<std::size_t>(row)] != 0) continue;
    end_row(row, ledger_.state(row));
  }
}

// What has failed in the workers after `first`, whose reports nobody else will read.
void ProcessEngine::add_later_failures(const WorkerSeat& first, process::RemoteError& failure) {
  for (std::size_t w = static_cast<std::size_t>(first.index()) + 1; w < seats_.size(); ++w) {
    WorkerSeat& seat = seats_[w];
    if (seat.command == Command::kNone || seat.owes_fault) continue;
    if (cell_of(seat).failed.load(std::memory_order_relaxed) == 0)
      continue;  // relaxed: after [done]
    try {
      failure.also({seat.spec().name, seat.next_report(patience_for_start())});
    } catch (const Error&) {  // it died since, or its report is damaged: the first failure counts
    }
  }
}

// The step or reset of this worker threw, or that of some of its environments, and it said so.
void ProcessEngine::collect_failure(WorkerSeat& seat) {
  if (cell_of(seat).failed.load(std::memory_order_relaxed) ==
      static_cast<std::uint32_t>(WorkerFailure::kEnvironments)) {
    lose_rows(seat);
    return;
  }
  process::ErrorReport report = seat.next_report(patience_for_start());
  if (options_.faults.on_fault == OnFault::kRaise) {
    state_.fail(fmt::format("{} failed: {}: {}", seat.describe(), report.type, report.message));
    process::RemoteError failure(seat.spec().name, std::move(report));
    add_later_failures(seat, failure);
    throw failure;
  }
  seat.process().kill(SIGKILL);
  process::DeathCertificate certificate = process::DeathCertificate::of(seat.process());
  certificate.report = std::move(report);
  handle_death(seat, std::move(certificate));
}

}  // namespace shoal::vector
