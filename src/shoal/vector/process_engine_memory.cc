// ProcessEngine: workers whose memory has grown are replaced between episodes.
//
// A worker over its limit gets a successor, which builds its environments while the old one goes
// on. When it is ready, the old worker's environments rest as their episodes end; when all rest,
// the successor takes their generators over, and the seat.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "shoal/os/log.h"
#include "shoal/process/welcome.h"
#include "shoal/vector/process_engine.h"

namespace shoal::vector {
namespace {

// For an old worker to hand its generators over; it is idle then.
constexpr std::chrono::milliseconds kHandOverTimeout{1000};
// Before another successor is tried where one has failed.
constexpr std::chrono::milliseconds kRetry{5000};

}  // namespace

// Between calls: goes on with every replacement as far as that takes no waiting.
void ProcessEngine::watch_memory() {
  std::erase_if(leaving_, [](const Leaving& old) {
    if (!old.process->exit_status() && os::Clock::now() < old.deadline) return false;
    tell_close_failures(old);
    return true;
  });
  for (WorkerSeat& seat : seats_) {
    if (!seat.attached()) continue;
    const std::uint64_t bytes =
        cell_of(seat).memory_bytes.load(std::memory_order_relaxed);  // relaxed: a measure
    if (options_.memory_hard_limit > 0 && bytes > options_.memory_hard_limit) {
      end_hog(seat, bytes, EnvMarker::kNone);
      handle_death(seat, process::DeathCertificate::of(seat.process()));
    } else if (seat.successor || (options_.memory_limit > 0 && bytes > options_.memory_limit)) {
      tend_successor(seat);
    }
  }
}

// During a call: who has passed the hard limit is killed, and its death handled as any.
void ProcessEngine::look_for_hogs() {
  if (options_.memory_hard_limit == 0) return;
  for (WorkerSeat& seat : seats_) {
    if (seat.command == Command::kNone || seat.owes_fault || !busy(seat)) continue;
    const std::uint64_t bytes = os::memory_use(seat.process().pid()).own_bytes;
    if (bytes <= options_.memory_hard_limit) continue;
    end_hog(seat, bytes,
            EnvMarker::blamed(cell_of(seat).env_now.load(std::memory_order_acquire)));  // [marker]
  }
}

void ProcessEngine::end_hog(WorkerSeat& seat, std::uint64_t bytes, int env) {
  seat.killed = KillReason::hog(seat.describe(), bytes, options_.memory_hard_limit, env);
  seat.process().kill(SIGKILL);
  static_cast<void>(seat.process().join(kHandOverTimeout));
}

void ProcessEngine::tend_successor(WorkerSeat& seat) {
  const os::Deadline now = os::Clock::now();
  if (seat.draining) {
    if (!seat.successor->dead()) {
      if (all_rest(seat)) change_over(seat);
      return;
    }
    drop_successor(seat, "it ended");
    return;
  }
  try {
    if (!seat.successor) {
      if (now < seat.retry_at || !launcher_->ready()) return;
      seat.successor = std::make_unique<WorkerSeat>(seat.spec());
      seat.successor->occupy(std::move(launch({seat.spec()}).front()));
      process::send_welcome(seat.successor->process(), *options_.board,
                            static_cast<int>(seats_.size()));
      seat.successor->start_deadline = os::deadline_after(options_.faults.start_timeout);
    } else if (seat.successor->take_hello(now)) {
      check_same_spaces(spaces_, seat.successor->hello(), seat.first_env());
      seat.draining = true;
      cell_of(seat).hold_resets.store(1, std::memory_order_relaxed);  // relaxed: before [command]
    } else if (now >= seat.successor->start_deadline) {
      drop_successor(seat, "it did not build its environments in time (start_timeout)");
    }
  } catch (const Error& error) {
    drop_successor(seat, error.what());
  }
}

// The old worker goes on; another successor is tried later.
void ProcessEngine::drop_successor(WorkerSeat& seat, const char* why) {
  os::log(os::LogLevel::kWarning, "{} is over its memory_limit, but its successor failed: {}",
          seat.describe(), why);
  seat.successor.reset();
  seat.draining = false;
  seat.retry_at = os::deadline_after(kRetry);
  cell_of(seat).hold_resets.store(0, std::memory_order_relaxed);  // relaxed: before [command]
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    ledger_.wake(row);
  }
}

bool ProcessEngine::all_rest(const WorkerSeat& seat) const {
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    if (ledger_.live(row)) return false;
  }
  return true;
}

// After a step of a worker that is to go: the environments whose episode has ended rest.
void ProcessEngine::rest_ended_rows(WorkerSeat& seat) {
  if (rows_.autoreset_mode == AutoresetMode::kDisabled) return;  // the caller resets
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    if (!ledger_.live(row) || (rows_.terminated[at] | rows_.truncated[at]) == 0) continue;
    ledger_.rest(row);
    if (rows_.autoreset_mode != AutoresetMode::kSameStep || rows_.has_final[at] != 0) continue;
    for (std::size_t leaf = 0; leaf < rows_.obs.size(); ++leaf) {
      std::memcpy(rows_.final_obs[leaf].row_data(row), rows_.obs[leaf].row_data(row),
                  rows_.obs[leaf].row_bytes());
    }
    rows_.has_final[at] = 1;
  }
}

// Everybody rests: the successor sits down, the old worker goes in its own time.
void ProcessEngine::change_over(WorkerSeat& seat) {
  const std::vector<std::byte> handed = hand_over(seat);
  ++sequence_;
  give(seat, Command::kClose);
  control_.doorbell().ring();
  leaving_.push_back({.process = seat.release_process(),
                      .name = seat.spec().name,
                      .deadline = os::deadline_after(options_.close_timeout)});
  seat.cell =
      seat.cell == seat.index() ? seat.index() + static_cast<int>(seats_.size()) : seat.index();
  seat.occupy(seat.successor->release_process());
  ++seat.recycles;
  seat.successor.reset();
  seat.draining = false;
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    if (handed.empty()) {
      ledger_.rest(row);  // of those that an explicit reset is about to begin anew
    } else {
      ledger_.wake(row);
    }
  }
  attach(seat, handed);
}

// No call is about these environments any more.
void ProcessEngine::tell_close_failures(const Leaving& old) noexcept {
  for (process::ErrorReport& report : close_failures(*old.process)) {
    os::log(os::LogLevel::kError, "the {} that was replaced, while it was closed: {}", old.name,
            process::RemoteError(old.name, std::move(report)).what());
  }
}

// Empty where the worker does not answer, or its environments have nothing to hand over.
std::vector<std::byte> ProcessEngine::hand_over(WorkerSeat& seat) {
  ++sequence_;
  give(seat, Command::kHandOver);
  control_.doorbell().ring();
  try {
    return answer(seat, sequence_, patience_for(kHandOverTimeout));
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning, "{} did not hand its random generators over: {}",
            seat.describe(), error.what());
    return {};
  }
}

// An explicit reset of all of a worker's rows is between episodes, too.
void ProcessEngine::change_over_before_reset() {
  for (WorkerSeat& seat : seats_) {
    if (!seat.attached() || !seat.draining || seat.successor->dead()) continue;
    const auto first = rows_.reset_mask.begin() + seat.first_env();
    if (std::find(first, first + seat.num_envs(), 0) == first + seat.num_envs()) change_over(seat);
  }
}

}  // namespace shoal::vector
