// AsyncVectorEnv: the synchronous calls, what is thrown away, and what becomes of lost
// environments.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/vector/async_leases.h"
#include "shoal/vector/async_vector_env.h"

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
  send_home(std::move(rows), Order::kReset);
}

void AsyncVectorEnv::step_async() {
  begin_call("step");
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
  take_failures(home, home_rows_, round);
  home_infos_.clear();
  large_infos_.clear();
  gather_infos(home, home_rows_, round, home_infos_);
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
      const auto sequence =
          segment_.slots()
              .look(static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(slots[0]))
              .sequence;
      std::vector<Arrivals::Info> infos;
      take_failures(from, slots, sequence);
      gather_infos(from, slots, sequence, infos);  // so that none is left at the host
      for (const std::size_t slot : slots)
        flight_.end(static_cast<std::size_t>(from.env_ids[slot]));
    }
    free_.push_back(std::exchange(block, -1));
  }
  // The next order begins a batch of its own.
  if (options_.cohorts == 0) {
    const auto size = static_cast<std::uint64_t>(options_.batch_size);
    next_recv_ = (tickets_ + size - 1) / size;
    tickets_ = next_recv_ * size;
    segment_.slots().restart(next_recv_);
  } else {
    const auto cohorts = static_cast<std::uint64_t>(options_.cohorts);
    next_recv_ += cohorts - next_recv_ % cohorts;  // never a sequence that was open before
  }
}

// The place of `row`, which is in flight, is filled by the caller: nobody else will.
void AsyncVectorEnv::deliver_fault(std::size_t row, RowFault fault) {
  const InboxEntry& entry = flight_.env(row).entry;
  const bool to_home = entry.block == segment_.home_block();
  sync::ArrivalSlots& slots = to_home ? segment_.home_slots() : segment_.slots();
  sync::SlotPlace place{entry.sequence, to_home ? 0U : entry.block, entry.slot};
  if (entry.block == InboxEntry::kArrival) {
    bool claimed = false;  // by who died with it in hand
    for (const int block : block_of_) {
      for (std::uint32_t slot = 0; block >= 0 && slot < slots.slots() && !claimed; ++slot) {
        const sync::SlotWord word = slots.look(static_cast<std::uint32_t>(block), slot);
        if (word.state != sync::SlotState::kClaimed || word.claimer != row) continue;
        place = {word.sequence, static_cast<std::uint32_t>(block), slot};
        claimed = true;
      }
    }
    if (!claimed) place = slots.claim(static_cast<std::uint32_t>(row));
  }
  const AsyncBlock& block =
      segment_.block(to_home ? segment_.home_block() : static_cast<int>(place.block));
  end_as_fault(row, block, place.slot, fault);
  slots.ready(place, static_cast<std::uint32_t>(row));
  block.gather->arrive(place.sequence);
}

// Truncated, with the last observation, or zeros where that was being written.
void AsyncVectorEnv::end_as_fault(std::size_t row, const AsyncBlock& block, std::size_t slot,
                                  RowFault fault) {
  const Rows& home = segment_.home();
  const std::int32_t marker = segment_.cell(worker_of(static_cast<int>(row)))
                                  .env_now.load(std::memory_order_relaxed);  // relaxed: it is dead
  if (EnvMarker::torn(marker, static_cast<int>(row))) {
    for (const shm::TensorView& leaf : home.obs) {
      std::memset(leaf.row_data(static_cast<std::int64_t>(row)), 0, leaf.row_bytes());
    }
  }
  home.reward[row] = 0;
  home.terminated[row] = 0;
  home.truncated[row] = 1;
  home.reset[row] = 0;
  home.has_final[row] = 0;
  if (block.base != segment_.block(segment_.home_block()).base) {
    copy_row(home, row, block.rows, slot);
  }
  block.rows.fault[slot] = static_cast<std::uint8_t>(fault);
  block.env_ids[slot] = static_cast<std::int64_t>(row);
  block.info_sizes[slot] = 0;
  flight_.env(row).needs_renewal = true;
  flight_.env(row).owes_fault = false;
}

void AsyncVectorEnv::drop(std::size_t row) { flight_.drop(row); }

// A dropped environment takes no place in arrival order: it would always be there first.
bool AsyncVectorEnv::is_left_out(std::size_t row) const noexcept {
  const InFlight::Env& env = flight_.env(row);
  return options_.cohorts == 0 && env.dropped && !env.owes_fault;
}

// The rows of the coming batch that nobody else can fill, now that environments were dropped.
void AsyncVectorEnv::fill_with_dropped() {
  const int live = num_envs() - flight_.dropped();
  if (live == 0) {
    throw InvalidState("recv: every environment has been dropped; make new ones to go on");
  }
  std::vector<std::int64_t> rows = expected_ids(next_recv_);
  int missing = static_cast<int>(rows.size());
  if (options_.cohorts == 0) {
    rows.resize(static_cast<std::size_t>(num_envs()));
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = static_cast<std::int64_t>(row);
    missing = live < options_.batch_size && flight_.count() >= live
                  ? options_.batch_size - flight_.count()
                  : 0;
  }
  const std::uint64_t now_ns = os::now_ns();
  for (const std::int64_t id : rows) {
    const auto row = static_cast<std::size_t>(id);
    const InFlight::Env& env = flight_.env(row);
    if (missing <= 0 || !env.dropped || env.in_flight) continue;
    push(order_for(row, Order::kStep), now_ns);
    --missing;
  }
}

void AsyncVectorEnv::lose(int worker) {
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  segment_.inbox(worker).reset();
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    const auto row = static_cast<std::size_t>(i);
    InFlight::Env& env = flight_.env(row);
    if (env.in_flight && !is_ready(row)) {
      deliver_fault(row, RowFault::kFault);
    } else {
      env.owes_fault = env.was_reset;
      env.needs_renewal = true;
    }
  }
  segment_.cell(worker).env_now.store(EnvMarker::kNone, std::memory_order_relaxed);  // relaxed: as
  // above
}

Stats AsyncVectorEnv::stats() const {
  const auto read = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);  // relaxed: telemetry
  };
  Stats stats{
      .steps = batches_, .resets = resets_, .wait_ns = wait_ns_, .parks = parks_, .workers = {}};
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
