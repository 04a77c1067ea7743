// AsyncVectorEnv: the synchronous calls, and what is thrown away.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/vector/async/async_leases.h"
#include "shoal/vector/async/async_vector_env.h"

namespace shoal::vector {
namespace {

// Where no gather tells of the end: a batch that will never be full.
constexpr std::chrono::milliseconds kShortSlice{1};

}  // namespace

std::vector<std::size_t> AsyncVectorEnv::selected_rows(
    const char* call, std::span<const std::optional<std::uint64_t>> seeds,
    std::span<const std::uint8_t> mask) const {
  const auto n = static_cast<std::size_t>(num_envs());
  const auto check = [&](std::size_t length, const char* what) {
    if (length == 0 || length == n) return;
    throw InvalidArgument(fmt::format(
        "{}: the length of {} must match num_envs={} but got length={}", call, what, n, length));
  };
  check(seeds.size(), "seeds");
  check(mask.size(), "mask");
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < n; ++row) {
    if (mask.empty() || mask[row] != 0) rows.push_back(row);
  }
  if (rows.empty()) {
    throw InvalidArgument(fmt::format("{}: the mask selects no environment", call));
  }
  return rows;
}

// Only these rows': others may be in flight.
void AsyncVectorEnv::write_seeds(std::span<const std::size_t> rows,
                                 std::span<const std::optional<std::uint64_t>> seeds) {
  const Rows& home = segment_.home();
  for (const std::size_t row : rows) {
    const bool has_seed = !seeds.empty() && seeds[row].has_value();
    home.has_seed[row] = has_seed;
    home.seed[row] = has_seed ? *seeds[row] : 0;
    seeds_[row] = has_seed ? seeds[row] : std::nullopt;
  }
}

void AsyncVectorEnv::require_nothing_in_flight(const char* call) const {
  if (flight_.count() == 0) return;
  throw AlreadyInFlight(
      fmt::format("{}: {} in flight; recv() until they are back, or discard() them", call,
                  flight_.count() == 1 ? "an environment is"
                                       : fmt::format("{} environments are", flight_.count())));
}

void AsyncVectorEnv::reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                                 std::span<const std::uint8_t> mask) {
  begin_call("reset");
  require_nothing_in_flight("reset");
  std::vector<std::size_t> rows = selected_rows("reset", seeds, mask);
  state_.begin_reset(mask);
  write_seeds(rows, seeds);
  ++resets_;
  drain_before_reset(rows);
  send_home(std::move(rows), Order::kReset);
}

void AsyncVectorEnv::step_async() {
  begin_call("step");
  state_.require_uninterrupted("step");
  require_nothing_in_flight("step");
  state_.begin_step();
  std::vector<std::size_t> rows(static_cast<std::size_t>(num_envs()));
  for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = row;
  ++batches_;
  send_home(std::move(rows), Order::kStep);
}

void AsyncVectorEnv::send_home(std::vector<std::size_t> rows, Order order) {
  home_rows_ = std::move(rows);
  const auto round = static_cast<std::uint32_t>(++home_round_);
  const int block = segment_.home_block();
  const AsyncBlock& home = segment_.block(block);
  std::fill(home.rows.fault.begin(), home.rows.fault.end(), std::uint8_t{0});
  home.gather->start(round, static_cast<std::uint32_t>(home_rows_.size()));
  const std::uint64_t now_ns = os::now_ns();
  for (const std::size_t row : home_rows_) {
    push({.row = static_cast<std::uint32_t>(row),
          .order = order,
          .block = segment_.home_block(),
          .slot = static_cast<std::uint32_t>(row),
          .sequence = round},
         now_ns);
  }
  wake_all();
}

Batch AsyncVectorEnv::wait(std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_pending();
  const AsyncBlock& home = segment_.block(segment_.home_block());
  const auto round = static_cast<std::uint32_t>(home_round_);
  wait_for({home, segment_.home_slots(), 0, round, home_rows_}, timeout);
  take_large_infos(home, home_rows_, round);
  take_failures(home, home_rows_);
  if (renewals_ > 0) settle_renewals(home, home_rows_);
  settle_ends(home, home_rows_);
  home_infos_.clear();
  gather_infos(home, home_rows_, home_infos_);
  gather_faults(home, home_rows_);
  for (const std::size_t row : home_rows_) flight_.end(row);
  state_.finish();
  return batch_of(home.rows);
}

// Ready batches go as recv() would hand them out; then the places of those that make no batch.
void AsyncVectorEnv::discard(std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_idle("discard");
  const os::Deadline deadline = timeout ? os::deadline_after(*timeout) : os::kNoDeadline;
  for (const std::int64_t id : flight_.ids()) {
    const auto row = static_cast<std::size_t>(id);
    while (!is_ready(row)) {
      if (flight_.env(row).held) {
        pass_over(row);
        continue;
      }
      // The batch that is complete last, or never.
      const std::uint64_t last =
          (tickets_ - 1) / static_cast<std::uint64_t>(options_.batch_size) % block_of_.size();
      const std::uint16_t own = flight_.env(row).entry.block;
      const int block = own == InboxEntry::kArrival ? block_of_[last] : own;
      const os::Deadline slice_end = std::min(deadline, os::deadline_after(kShortSlice));
      static_cast<void>(await(*segment_.block(block).gather, slice_end));
      if (is_ready(row) || look_around()) continue;
      if (options_.interrupt_check) options_.interrupt_check();
      if (os::Clock::now() >= deadline) throw_timed_out();
    }
  }
  for (int& block : block_of_) {
    if (block < 0) continue;
    std::vector<std::size_t> slots;
    for (const std::size_t slot : all_slots_) {
      const sync::SlotWord word = segment_.slots().look(static_cast<std::uint32_t>(block),
                                                        static_cast<std::uint32_t>(slot));
      if (word.state == sync::SlotState::kReady) slots.push_back(slot);
    }
    const AsyncBlock& from = segment_.block(block);
    if (!slots.empty()) {
      take_rows(from, slots);
      const auto sequence =
          segment_.slots()
              .look(static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(slots[0]))
              .sequence;
      take_large_infos(from, slots, sequence);  // so that none is left at the host
      take_failures(from, slots);
      if (renewals_ > 0) settle_renewals(from, slots);
      settle_ends(from, slots);
      for (const std::size_t slot : slots) flight_.end(row_at(from, slot));
    }
    free_.push_back(std::exchange(block, -1));
  }
  discard_interrupted_call();
  // The next order begins a batch of its own.
  if (options_.cohorts == 0) {
    const auto size = static_cast<std::uint64_t>(options_.batch_size);
    next_recv_ = (tickets_ + size - 1) / size;
    tickets_ = opened_ = next_recv_ * size;
    segment_.slots().restart(next_recv_);
  } else {
    const auto cohorts = static_cast<std::uint64_t>(options_.cohorts);
    next_recv_ += cohorts - next_recv_ % cohorts;  // never a sequence that was open before
  }
}

// Of a reset or step of all: what is in flight at home.
void AsyncVectorEnv::discard_interrupted_call() {
  if (!state_.interrupted()) return;
  std::vector<std::size_t> rows;
  for (const std::int64_t id : flight_.ids()) rows.push_back(static_cast<std::size_t>(id));
  const AsyncBlock& home = segment_.block(segment_.home_block());
  take_large_infos(home, rows, static_cast<std::uint32_t>(home_round_));
  take_failures(home, rows);
  for (const std::size_t row : rows) flight_.end(row);
}

Stats AsyncVectorEnv::stats() const {
  const auto read = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);  // relaxed: telemetry
  };
  Stats stats{.steps = batches_,
              .resets = resets_,
              .wait_ns = wait_ns_,
              .parks = parks_,
              .placement = {},
              .workers = {}};
  for (std::size_t w = 0; w < shares_.size(); ++w) {
    const AsyncCell& cell = segment_.cell(static_cast<int>(w));
    stats.workers.push_back({.first_env = shares_[w].first_env,
                             .num_envs = shares_[w].num_envs,
                             .steps = read(cell.steps),
                             .resets = read(cell.resets),
                             .busy_ns = read(cell.busy_ns),
                             .parks = read(cell.parks)});
  }
  return stats;
}

}  // namespace shoal::vector
