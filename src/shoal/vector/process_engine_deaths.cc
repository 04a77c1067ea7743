// ProcessEngine: what becomes of a worker's rows and seat when the worker has died.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/vector/process_engine.h"

namespace shoal::vector {

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

// Throws for kRaise, and for kRestart when there were too many; else the seat owes a fault and
// somebody new sits in it.
void ProcessEngine::handle_death(WorkerSeat& seat, process::DeathCertificate certificate) {
  if (options_.on_fault == OnFault::kRaise) {
    state_.fail(fmt::format("{} died ({})", seat.describe(), certificate.status.describe()));
    throw process::WorkerDied(std::move(certificate));
  }
  count_restart(certificate);
  seat.owes_fault = true;
  seat.needs_reset = true;
  replace(seat);
}

void ProcessEngine::count_restart(const process::DeathCertificate& certificate) {
  const auto now = os::Clock::now();
  while (!recent_restarts_.empty() && now - recent_restarts_.front() > options_.restart_window) {
    recent_restarts_.pop_front();
  }
  recent_restarts_.push_back(now);
  if (recent_restarts_.size() <= static_cast<std::size_t>(options_.max_restarts)) return;
  state_.fail(fmt::format(
      "{} died ({}), the death number {} within {} s, of which {} are forgiven", certificate.worker,
      certificate.status.describe(), recent_restarts_.size(),
      std::chrono::duration<double>(options_.restart_window).count(), options_.max_restarts));
  throw_death(certificate);
}

void ProcessEngine::replace(WorkerSeat& seat) {
  try {
    seat.vacate();
    seat.occupy_again(std::move(launch({seat.spec()}).front()));
  } catch (const std::exception& error) {
    state_.fail(
        fmt::format("no replacement could be started for {}: {}", seat.describe(), error.what()));
    throw;
  }
}

// Attaches those who were started in the place of dead workers.
void ProcessEngine::seat_replacements() {
  for (WorkerSeat& seat : seats_) {
    while (!seat.attached()) {
      try {
        seat.receive_hello(patience_for_start());
        check_same_spaces(spaces_, seat.hello(), seat.first_env());
        attach(seat);
      } catch (const process::WorkerDied& death) {
        count_restart(death.certificate());
        replace(seat);
      } catch (const Error& error) {  // and not what the interrupt check throws
        state_.fail(fmt::format("the replacement of {} failed: {}", seat.describe(), error.what()));
        throw;
      }
    }
  }
}

// Ends a dead worker's rows: truncated, with the last observation, or zeros where that was being
// written.
void ProcessEngine::end_rows_as_fault(WorkerSeat& seat) {
  const std::int32_t marker =
      control_.cell(seat.index()).env_now.load(std::memory_order_relaxed);  // relaxed: it is dead
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    rows_.reward[at] = 0;
    rows_.terminated[at] = 0;
    rows_.truncated[at] = 1;
    rows_.reset[at] = 0;
    rows_.has_final[at] = 0;
    rows_.fault[at] = 1;
    if (!EnvMarker::torn(marker, row)) continue;
    for (const shm::TensorView& leaf : rows_.obs)
      std::memset(leaf.row_data(row), 0, leaf.row_bytes());
  }
  seat.owes_fault = false;
  seat.command = Command::kNone;  // it has no info
  rows_have_faults_ = true;
}

}  // namespace shoal::vector
