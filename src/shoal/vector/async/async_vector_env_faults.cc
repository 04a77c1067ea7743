// AsyncVectorEnv: what becomes of environments that are lost, and of orders that nobody can take.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/vector/async/async_vector_env.h"
#include "shoal/vector/fault/fault_account.h"

namespace shoal::vector {

// The place of `row`, which is in flight, is filled by the caller: nobody else will.
void AsyncVectorEnv::deliver_fault(std::size_t row, RowFault fault) {
  const InboxEntry& entry = flight_.env(row).entry;
  const bool to_home = entry.block == segment_.home_block();
  sync::ArrivalSlots& slots = to_home ? segment_.home_slots() : segment_.slots();
  sync::SlotPlace place{entry.sequence, to_home ? 0U : entry.block, entry.slot};
  if (entry.block == InboxEntry::kArrival) {
    const std::optional<sync::SlotPlace> left = claimed_place(row);
    place = left ? *left : slots.claim(static_cast<std::uint32_t>(row));
    if (place.count == 0) throw_overwritten();
  }
  const AsyncBlock& block =
      segment_.block(to_home ? segment_.home_block() : static_cast<int>(place.block));
  end_as_fault(row, block, place.slot, fault);
  slots.ready(place, static_cast<std::uint32_t>(row));
  block.gather->arrive(place.sequence);
}

// The place that was claimed for `row` by who died with it in hand.
std::optional<sync::SlotPlace> AsyncVectorEnv::claimed_place(std::size_t row) {
  sync::ArrivalSlots& slots = segment_.slots();
  for (const int b : block_of_) {
    if (b < 0) continue;
    const auto block = static_cast<std::uint32_t>(b);
    for (std::uint32_t slot = 0; slot < slots.slots(); ++slot) {
      const sync::SlotWord word = slots.look(block, slot);
      // Of a run in which `row` may be; its first place may be filled already.
      if (word.state == sync::SlotState::kFree || row < word.claimer ||
          row > word.claimer + word.more)
        continue;
      const auto at = slot + static_cast<std::uint32_t>(row - word.claimer);
      if (at >= slots.slots()) continue;
      if (slots.look(block, at).state != sync::SlotState::kReady)
        return sync::SlotPlace{word.sequence, block, at};
    }
  }
  return {};
}

// Truncated, with the last observation.
void AsyncVectorEnv::end_as_fault(std::size_t row, const AsyncBlock& block, std::size_t slot,
                                  RowFault fault) {
  const Rows& home = segment_.home();
  home.reward[row] = 0;
  home.terminated[row] = 0;
  home.truncated[row] = 1;
  home.reset[row] = 0;
  home.has_final[row] = 0;
  if (block.base != segment_.block(segment_.home_block()).base) {
    copy_rows(home, row, block.rows, slot, 1);
  }
  block.rows.fault[slot] = static_cast<std::uint8_t>(fault);
  block.env_ids[slot] = static_cast<std::int64_t>(row);
  block.info_sizes[slot] = 0;
  InFlight::Env& env = flight_.env(row);
  if (std::exchange(env.renewing, false)) --renewals_;
  // Who was only passed over is where it was; unless that was its reset.
  if (fault == RowFault::kFault || env.entry.order == Order::kReset) env.needs_renewal = true;
  env.owes_fault = false;
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

// Zeros where a dead worker was writing an observation.
void AsyncVectorEnv::wipe(std::size_t row) {
  for (const shm::TensorView& leaf : segment_.home().obs) {
    std::memset(leaf.row_data(static_cast<std::int64_t>(row)), 0, leaf.row_bytes());
  }
}

void AsyncVectorEnv::lose(int worker) {
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  segment_.inbox(worker).reset();
  set_draining(worker, false);
  const std::int32_t marker =
      segment_.cell(worker).env_now.load(std::memory_order_relaxed);  // relaxed: it is dead
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    const auto row = static_cast<std::size_t>(i);
    InFlight::Env& env = flight_.env(row);
    env.hold = InFlight::kAway;
    if (std::exchange(env.held, false)) --held_;
    const bool is_out = env.in_flight && !is_ready(row);
    if (is_out && EnvMarker::torn(marker, i)) wipe(row);
    if (is_out) {
      deliver_fault(row, RowFault::kFault);
    } else {
      env.outlived = env.in_flight;
      env.owes_fault = env.was_reset;
      env.needs_renewal = true;
    }
  }
  // relaxed: as above
  segment_.cell(worker).env_now.store(EnvMarker::kNone, std::memory_order_relaxed);
}

void AsyncVectorEnv::come_back(int worker) {
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    release(static_cast<std::size_t>(i), InFlight::kAway);
  }
}

void AsyncVectorEnv::release(std::size_t row, InFlight::Hold why) {
  InFlight::Env& env = flight_.env(row);
  env.hold = static_cast<std::uint8_t>(env.hold & ~why);
  if (env.hold != 0 || !std::exchange(env.held, false)) return;
  --held_;
  post(row);
}

// The step that was ordered is the reset of a new environment, with a seed of its own.
void AsyncVectorEnv::prepare_renewal(std::size_t row) {
  InFlight::Env& env = flight_.env(row);
  env.needs_renewal = false;
  env.entry.order = Order::kRenew;
  if (!std::exchange(env.renewing, true)) ++renewals_;
  const Rows& home = segment_.home();
  const auto& seed = seeds_[row];
  home.has_seed[row] = seed.has_value();
  home.seed[row] = seed ? renewal_seed(*seed, restarts_of(row)) : 0;
}

// The order of `row`, which waits here, ends without a step.
void AsyncVectorEnv::pass_over(std::size_t row) {
  flight_.env(row).held = false;
  --held_;
  deliver_fault(row, RowFault::kDown);
}

// A result whose places are given does not wait for who is down, unless all are and come back by
// themselves; true when some rows ended so.
bool AsyncVectorEnv::pass_over_the_down(const Target& target) {
  const bool home = &target.slots == &segment_.home_slots();
  if (!home && options_.cohorts == 0) return fill_with_drained();
  const std::size_t first = home ? 0 : static_cast<std::size_t>(expected_ids(next_recv_).front());
  std::vector<std::size_t> down;
  bool others = false;
  for (const std::size_t slot : target.wanted) {
    const std::size_t row = first + slot;
    const InFlight::Env& env = flight_.env(row);
    others = others || !env.held || is_stuck(row);
    if (env.held && env.entry.order == Order::kStep) down.push_back(row);
  }
  if (!others) return false;
  for (const std::size_t row : down) pass_over(row);
  return !down.empty();
}

void AsyncVectorEnv::settle_renewals(const AsyncBlock& block, std::span<const std::size_t> slots) {
  for (const std::size_t slot : slots) {
    const std::size_t row = row_at(block, slot);
    if (!std::exchange(flight_.env(row).renewing, false)) continue;
    --renewals_;
    is_back(row);
  }
}

std::optional<InboxEntry> AsyncVectorEnv::overdue(int worker, std::uint64_t start_ns,
                                                  std::uint64_t now_ns) const {
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  std::optional<InboxEntry> oldest;
  std::uint64_t sent_ns = now_ns;
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    const auto row = static_cast<std::size_t>(i);
    const InFlight::Env& env = flight_.env(row);
    if (!env.in_flight || env.held || env.sent_ns >= std::min(start_ns, sent_ns)) continue;
    if (is_ready(row)) continue;
    sent_ns = env.sent_ns;
    oldest = env.entry;
  }
  return oldest;
}

}  // namespace shoal::vector
