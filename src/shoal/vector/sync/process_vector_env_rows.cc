// ProcessVectorEnv: rows whose environment is lost, away, new, or drained.
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "shoal/vector/sync/process_vector_env.h"

namespace shoal::vector {
namespace {

// Between looks at workers that are away: no channel is waited for, as nobody knows whose hello
// comes first.
constexpr std::chrono::milliseconds kAwaySlice{5};

}  // namespace

// --- environments that are gone with their worker

void ProcessVectorEnv::lose(int worker) {
  Part& part = this->part(worker);
  const FaultScene& scene = slot(worker).scene;
  if (slot(worker).is_up()) {
    // Zeros where a dead worker was writing an observation. The last one comes in its stead where
    // that is in another place (end_row).
    const std::int32_t marker =
        cell(worker).env_now.load(std::memory_order_relaxed);  // relaxed: it is dead
    for (int row = scene.first_env; row < slot(worker).end_env(); ++row) {
      if (!EnvMarker::torn(marker, row)) continue;
      for (const shm::TensorView& leaf : rows_.obs)
        std::memset(leaf.row_data(row), 0, leaf.row_bytes());
    }
    if (is_at_work(worker)) {
      // In its stead: it did not get there.
      control_.gather().arrive(static_cast<std::uint32_t>(sequence_));
    }
  }
  part.owes_fault = true;
  part.has_orders = false;
  part.drains = false;
}

void ProcessVectorEnv::come_back(int worker) {
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    ledger().stand(row);
  }
}

void ProcessVectorEnv::end_rows_as_fault(int worker) {
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    end_row(row, RowFault::kFault);
    faults_.push_back({row, set_.faults().last_of(row)});
  }
  part(worker).owes_fault = false;
  part(worker).command = Command::kNone;  // it has no info
}

// Environments of a worker failed, and it goes on with the others.
void ProcessVectorEnv::lose_rows(int worker, std::vector<process::ErrorReport> reports) {
  for (process::ErrorReport& report : reports) {
    const int row = report.env_index;
    const Fault fault =
        set_.faults().admit(worker, account_of_failure(slot(worker).scene, std::move(report)));
    end_row(row, RowFault::kFault);
    faults_.push_back({row, fault});
  }
  part(worker).has_orders = true;
}

// Writes a row that is no transition, with the last observation.
void ProcessVectorEnv::end_row(int row, RowFault why) {
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

void ProcessVectorEnv::mark_rows_that_are_not_live() {
  for (int row = 0; row < rows_.num_envs; ++row) {
    if (ledger().live(row) || rows_.fault[static_cast<std::size_t>(row)] != 0) continue;
    end_row(row, ledger().state(row));
  }
}

// --- waiting for those that are away

bool ProcessVectorEnv::chooses(int worker, std::uint8_t chosen) const {
  const auto first = rows_.reset_mask.begin() + slot(worker).scene.first_env;
  return std::find(first, first + slot(worker).scene.num_envs, chosen) !=
         first + slot(worker).scene.num_envs;
}

// The observation of a reset comes with no mark that says it is none: its rows are waited for,
// unless they are gone for good.
void ProcessVectorEnv::await_chosen_rows() {
  const Patience patience = patience_for({});
  const auto all_are_there = [this] {
    for (int worker = 0; worker < set_.size(); ++worker) {
      const bool settled = slot(worker).is_up() || slot(worker).state == WorkerSlot::State::kGone;
      if (!settled && chooses(worker, 1)) return false;
    }
    return true;
  };
  while (!all_are_there()) {
    pause(patience);
    static_cast<void>(set_.poll());
  }
  for (int worker = 0; worker < set_.size(); ++worker) {
    if (chooses(worker, 1)) part(worker).owes_fault = false;  // its episodes are over anyway
  }
}

// No row is live: a step that only says so would be repeated at once, so it waits for one.
void ProcessVectorEnv::await_any_row(const Patience& patience) {
  const auto owes_fault = [](const Part& part) { return part.owes_fault; };
  while (posted_none_ && std::none_of(parts_.begin(), parts_.end(), owes_fault)) {
    pause(patience);
    static_cast<void>(set_.poll());
    for (int row = 0; row < rows_.num_envs; ++row) rows_.carry_over(row);
    post(posted_command_);
  }
}

// A short wait for what may happen to a worker that is away: a hello, or the time to start it.
void ProcessVectorEnv::pause(const Patience& patience) {
  if (patience.check) patience.check();
  if (patience.over()) {
    throw TimedOut("no environment has come back in time; wait for one again, or close()");
  }
  os::Deadline until = std::min(patience.deadline, os::deadline_after(kAwaySlice));
  for (int row = 0; row < rows_.num_envs; ++row) {
    if (ledger().state(row) == RowFault::kDown) until = std::min(until, ledger().due(row));
  }
  std::this_thread::sleep_until(std::max(until, os::deadline_after(Patience::kShortSlice)));
}

// --- new environments

// Says for every row of a worker whether it obeys; false when the worker has nothing to do.
bool ProcessVectorEnv::give_orders(int worker, Command command) {
  const bool explicit_reset = command == Command::kReset;
  const os::Deadline now = os::Clock::now();
  bool any = false;
  bool orders = false;
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    auto order = RowOrder::kObey;
    const bool asked = explicit_reset && rows_.reset_mask[at] != 0;
    if (ledger().dropped(row)) {
      order = RowOrder::kSkip;
    } else if (ledger().stands(row)) {
      order = RowOrder::kRenew;
      prepare_reset(worker, row, asked);
    } else if (ledger().drained(row)) {
      if (!asked) order = RowOrder::kSkip;
      if (asked) ledger().resume(row);
    } else if (!ledger().live(row)) {
      const bool chosen = explicit_reset ? asked : ledger().due(row) <= now;
      order = chosen ? RowOrder::kRebuild : RowOrder::kSkip;
      if (chosen) prepare_reset(worker, row, explicit_reset);
    }
    rows_.order[at] = static_cast<std::uint8_t>(order);
    any = any || order != RowOrder::kSkip;
    orders = orders || order != RowOrder::kObey;
  }
  part(worker).has_orders = orders;
  cell(worker).has_orders.store(orders ? 1 : 0,
                                std::memory_order_relaxed);  // relaxed: before [command]
  return any;
}

// A new environment is reset with the seed that the caller gives now, or with one that follows from
// the last it gave.
void ProcessVectorEnv::prepare_reset(int worker, int row, bool keep_seed) {
  const auto at = static_cast<std::size_t>(row);
  rows_.reset_mask[at] = 1;
  if (keep_seed) return;
  rows_.has_seed[at] = seeds_[at].has_value();
  if (seeds_[at]) rows_.seed[at] = renewal_seed(*seeds_[at], set_.restarts_of(worker, row));
}

// The rows whose environments were to begin anew are live, but for those that failed again.
void ProcessVectorEnv::settle_orders(int worker) {
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    const auto order = static_cast<RowOrder>(rows_.order[at]);
    const bool renewed = order == RowOrder::kRebuild || order == RowOrder::kRenew;
    if (!renewed || rows_.fault[at] != 0) continue;
    ledger().back(row);
    rows_.order[at] = static_cast<std::uint8_t>(RowOrder::kObey);
  }
  set_.dismiss_if_all_are_dropped(worker);
}

VectorEnv::Presence ProcessVectorEnv::presence(int env) const {
  if (ledger().dropped(env)) return Presence::kDropped;
  const bool there = ledger().live(env) || (ledger().drained(env) && !ledger().stands(env));
  return there ? Presence::kThere : Presence::kNew;
}

// What its worker still had to tell is of no account when all of its rows have been put back.
void ProcessVectorEnv::restored(int env) {
  ledger().resume(env);
  ledger().back(env);
  for (int worker = 0; worker < set_.size(); ++worker) {
    const WorkerSlot& slot = this->slot(worker);
    if (env < slot.scene.first_env || env >= slot.end_env()) continue;
    int row = slot.scene.first_env;
    while (row < slot.end_env() && (ledger().live(row) || ledger().dropped(row))) ++row;
    if (row == slot.end_env()) part(worker).owes_fault = false;
  }
}

// --- a worker that is to be replaced between episodes

void ProcessVectorEnv::begin_drain(int worker) {
  part(worker).drains = true;
  cell(worker).hold_resets.store(1, std::memory_order_relaxed);  // relaxed: before [command]
}

bool ProcessVectorEnv::is_drained(int worker) const {
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    if (ledger().live(row)) return false;
  }
  return true;
}

void ProcessVectorEnv::end_drain(int worker) {
  part(worker).drains = false;
  cell(worker).hold_resets.store(0, std::memory_order_relaxed);  // relaxed: before [command]
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    ledger().resume(row);
  }
}

void ProcessVectorEnv::replace(int worker, bool keeps_generators) {
  part(worker).drains = false;
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    if (keeps_generators) ledger().resume(row);
    ledger().stand(row);
  }
}

// After a step of a worker that is to go: the environments whose episode has ended are drained.
void ProcessVectorEnv::rest_ended_rows(int worker) {
  if (rows_.autoreset_mode == AutoresetMode::kDisabled) return;  // the caller resets
  for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    if (!ledger().live(row) || (rows_.terminated[at] | rows_.truncated[at]) == 0) continue;
    ledger().mark_drained(row);
    if (rows_.autoreset_mode != AutoresetMode::kSameStep || rows_.has_final[at] != 0) continue;
    for (std::size_t leaf = 0; leaf < rows_.obs.size(); ++leaf) {
      std::memcpy(rows_.final_obs[leaf].row_data(row), rows_.obs[leaf].row_data(row),
                  rows_.obs[leaf].row_bytes());
    }
    rows_.has_final[at] = 1;
  }
}

// An explicit reset of all of a worker's rows is between episodes, too.
void ProcessVectorEnv::drain_before_reset() {
  for (int worker = 0; worker < set_.size(); ++worker) {
    if (!part(worker).drains || chooses(worker, 0)) continue;
    for (int row = slot(worker).scene.first_env; row < slot(worker).end_env(); ++row) {
      ledger().mark_drained(row);
    }
  }
  static_cast<void>(set_.poll());
}

}  // namespace shoal::vector
