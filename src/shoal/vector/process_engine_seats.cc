// ProcessEngine: rows and seats that are empty for a while, and how they are filled again.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include "shoal/process/stack_dump.h"
#include "shoal/vector/process_engine.h"

namespace shoal::vector {
namespace {

// For a worker that hangs while it starts to tell its stack.
constexpr std::chrono::milliseconds kStackTimeout{1000};

}  // namespace

bool ProcessEngine::gone_for_good(const WorkerSeat& seat) const {
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    if (!ledger_.dropped(row)) return false;
  }
  return true;
}

// Goes on with every empty seat as far as that takes no waiting: starts who is due, greets and
// seats who is ready.
void ProcessEngine::tend() {
  for (WorkerSeat& seat : seats_) {
    if (!seat.attached() && !gone_for_good(seat)) tend_seat(seat);
  }
}

void ProcessEngine::tend_seat(WorkerSeat& seat) {
  const os::Deadline now = os::Clock::now();
  try {
    if (!seat.occupied()) {
      const bool ready = launcher_->ready();  // asked first: a zygote preloads during a back-off
      if (!ready || now < ledger_.due(seat.first_env())) return;
      seat.occupy_again(std::move(launch({seat.spec()}).front()));
      seat.start_deadline = os::deadline_after(options_.faults.start_timeout);
      health_.change(seat.index(), [&](WorkerHealth& health) {
        health.pid = seat.process().pid();
        health.state = WorkerState::kStarting;
        health.restarts = seat.restarts();
      });
      return;
    }
    if (seat.take_hello(now)) {
      check_same_spaces(spaces_, seat.hello(), seat.first_env());
      attach(seat);
    } else if (now >= seat.start_deadline) {
      hung_while_starting(seat);
    }
  } catch (const process::RemoteError& error) {
    lose_seat(seat, account_of_failed_start(seat.scene(), "could not build its environments",
                                            error.report()));
  } catch (const process::WorkerDied& death) {
    lose_seat(seat, record_of(seat, death.certificate()));
  } catch (const InvalidArgument& error) {  // other spaces: no restart would change that
    state_.fail(fmt::format("the replacement of {} failed: {}", seat.describe(), error.what()));
    throw;
  } catch (const TooManyFaults&) {
    throw;
  } catch (const Error&) {
    lose_seat(seat, account_of_failed_start(seat.scene()));
  }
}

void ProcessEngine::hung_while_starting(WorkerSeat& seat) {
  const std::string stack = process::ask_for_stack(seat.process(), kStackTimeout);
  lose_seat(seat, account_of_hung_start(seat.scene(), options_.faults.start_timeout, stack));
}

// Until every wanted seat has its worker, or is gone for good. Throws TimedOut.
void ProcessEngine::await_seats(const std::function<bool(const WorkerSeat&)>& wanted,
                                const Patience& patience) {
  for (;;) {
    bool all = true;
    for (WorkerSeat& seat : seats_) {
      if (seat.attached() || gone_for_good(seat) || !wanted(seat)) continue;
      seat.owes_fault = false;  // its rows are of no account before it sits here
      tend_seat(seat);
      all = all && seat.attached();
    }
    if (all) return;
    rest_until_due(patience);
  }
}

void ProcessEngine::await_worker(WorkerSeat& seat, const Patience& patience) {
  if (seat.attached()) return;
  if (gone_for_good(seat)) {
    throw InvalidState(fmt::format("{} has been dropped: there is nobody to ask", seat.describe()));
  }
  const Fault owed = seat.owes_fault ? seat.fault : nullptr;
  await_seats([&](const WorkerSeat& other) { return other.index() == seat.index(); }, patience);
  // The rows of the next step still have to tell of it.
  if (owed) {
    seat.fault = owed;
    seat.owes_fault = true;
  }
}

// No row is live: a step that only says so would be repeated at once, so it waits for one.
void ProcessEngine::await_any_row(const Patience& patience) {
  const auto owed = [](const WorkerSeat& seat) { return seat.owes_fault; };
  while (posted_none_ && std::none_of(seats_.begin(), seats_.end(), owed)) {
    rest_until_due(patience);
    if (watches_memory()) watch_memory();
    tend();
    for (int row = 0; row < rows_.num_envs; ++row) rows_.carry_over(row);
    post(posted_command_);
  }
}

// A short wait for what may happen to an empty seat: a hello, or the time to start somebody.
void ProcessEngine::rest_until_due(const Patience& patience) {
  if (patience.check) patience.check();
  if (os::Clock::now() >= patience.deadline) {
    throw TimedOut("no environment has come back in time; wait() again, or close()");
  }
  os::Deadline until = std::min(patience.slice_end(), os::deadline_after(Patience::kShortSlice));
  for (int row = 0; row < rows_.num_envs; ++row) {
    if (ledger_.state(row) == RowFault::kDown) until = std::min(until, ledger_.due(row));
  }
  // Not of a channel: whose hello comes first is not known.
  std::this_thread::sleep_until(std::max(until, os::deadline_after(Patience::kShortestSlice)));
}

// Says for every row of a worker whether it obeys; false when the worker has nothing to do.
bool ProcessEngine::give_orders(WorkerSeat& seat, Command command) {
  const bool explicit_reset = command == Command::kReset;
  const os::Deadline now = os::Clock::now();
  bool any = false;
  bool orders = false;
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    auto order = RowOrder::kObey;
    const bool asked = explicit_reset && rows_.reset_mask[at] != 0;
    if (ledger_.dropped(row)) {
      order = RowOrder::kSkip;
    } else if (ledger_.stands(row)) {
      order = RowOrder::kRenew;
      prepare_reset(row, asked);
    } else if (ledger_.resting(row)) {
      if (!asked) order = RowOrder::kSkip;
      if (asked) ledger_.wake(row);
    } else if (!ledger_.live(row)) {
      const bool chosen = explicit_reset ? rows_.reset_mask[at] != 0 : ledger_.due(row) <= now;
      order = chosen ? RowOrder::kRebuild : RowOrder::kSkip;
      if (chosen) prepare_reset(row, explicit_reset);
    }
    rows_.order[at] = static_cast<std::uint8_t>(order);
    any = any || order != RowOrder::kSkip;
    orders = orders || order != RowOrder::kObey;
  }
  seat.has_orders = orders;
  cell_of(seat).has_orders.store(orders ? 1 : 0,
                                 std::memory_order_relaxed);  // relaxed: before [command]
  return any;
}

// A new environment is reset with the seed that the caller gives now, or with one that follows from
// the last it gave.
void ProcessEngine::prepare_reset(int row, bool keep_seed) {
  const auto at = static_cast<std::size_t>(row);
  rows_.reset_mask[at] = 1;
  if (keep_seed) return;
  rows_.has_seed[at] = seeds_[at].has_value();
  if (seeds_[at]) rows_.seed[at] = renewal_seed(*seeds_[at], ledger_.restarts(row));
}

// The rows whose environments were to begin anew are live, but for those that failed again.
void ProcessEngine::settle_orders(WorkerSeat& seat) {
  bool all_dropped = true;
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    const auto order = static_cast<RowOrder>(rows_.order[at]);
    const bool renewed = order == RowOrder::kRebuild || order == RowOrder::kRenew;
    if (renewed && rows_.fault[at] == 0) {
      ledger_.back(row);
      rows_.order[at] = static_cast<std::uint8_t>(RowOrder::kObey);
    }
    all_dropped = all_dropped && ledger_.dropped(row);
  }
  if (!all_dropped) return;
  seat.successor.reset();
  seat.draining = false;
  seat.vacate();
  health_.change(seat.index(), [](WorkerHealth& health) {
    health.pid = 0;
    health.state = WorkerState::kDropped;
  });
}

VectorEnv::Presence ProcessEngine::presence(int env) const {
  if (ledger_.dropped(env)) return VectorEnv::Presence::kDropped;
  const bool there = ledger_.live(env) || (ledger_.resting(env) && !ledger_.stands(env));
  return there ? VectorEnv::Presence::kThere : VectorEnv::Presence::kNew;
}

// What its worker still had to tell is of no account when all of its rows have been put back.
void ProcessEngine::restored(int env) {
  ledger_.wake(env);
  ledger_.back(env);
  for (WorkerSeat& seat : seats_) {
    const int end = seat.first_env() + seat.num_envs();
    if (env < seat.first_env() || env >= end || !seat.owes_fault) continue;
    int row = seat.first_env();
    while (row < end && (ledger_.live(row) || ledger_.dropped(row))) ++row;
    if (row < end) continue;
    seat.owes_fault = false;
    seat.fault.reset();
  }
}

std::vector<WorkerHealth> ProcessEngine::health() const {
  std::vector<WorkerHealth> all = health_.copy();
  const std::uint64_t now = os::now_ns();
  for (std::size_t w = 0; w < all.size(); ++w) {
    WorkerHealth& worker = all[w];
    worker.rss_bytes = worker.pid > 0 ? rss_of(worker.pid) : 0;
    if (worker.state != WorkerState::kIdle && worker.state != WorkerState::kHung) continue;
    const WorkerCell& cell = control_.cell(worker.cell);
    const std::uint64_t word = cell.command.load(std::memory_order_acquire);  // [command]
    if (cell.done.load(std::memory_order_acquire) == WorkerCell::sequence_of(word)) continue;
    if (worker.state == WorkerState::kIdle) worker.state = WorkerState::kStepping;
    worker.env = EnvMarker::blamed(cell.env_now.load(std::memory_order_acquire));  // [marker]
    const std::uint64_t since = cell.env_since.load(std::memory_order_relaxed);
    worker.since = std::chrono::nanoseconds(now > since ? now - since : 0);
  }
  return all;
}

}  // namespace shoal::vector
