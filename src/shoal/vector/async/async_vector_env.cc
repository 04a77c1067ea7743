#include "shoal/vector/async/async_vector_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "shoal/trace/recorder.h"
#include "shoal/vector/async/async_leases.h"

namespace shoal::vector {
namespace {

template <class T>
bool any_not_zero(std::span<const T> values) noexcept {
  T all = 0;
  for (const T value : values) all |= value;
  return all != 0;
}

// Whether a row of this block has an info.
bool said_anything(const AsyncBlock& block) noexcept {
  return any_not_zero<std::uint32_t>(block.info_sizes);
}

static_assert(sync::Gather::kMaxArrivals <= 1 << 16);  // a row is who claims a place (SlotWord)

// Longest wait without a look at deaths and interrupts.
constexpr std::chrono::milliseconds kSlice{50};
// While somebody is started anew.
constexpr std::chrono::milliseconds kShortSlice{1};

}  // namespace

AsyncVectorEnv::AsyncVectorEnv(const Options& options) : options_(options) {}

void AsyncVectorEnv::set_up(Hello spaces, std::vector<Share> shares, AutoresetMode mode) {
  spaces_ = std::move(spaces);
  shares_ = std::move(shares);
  int most = 0;
  for (std::size_t w = 0; w < shares_.size(); ++w) {
    owner_.insert(owner_.end(), static_cast<std::size_t>(shares_[w].num_envs), static_cast<int>(w));
    most = std::max(most, shares_[w].num_envs);
  }
  const int n = static_cast<int>(owner_.size());
  options_.num_envs = n;
  check_options();
  if (options_.cohorts > 0) options_.batch_size = n / options_.cohorts;
  if (options_.batch_size == 0) options_.batch_size = n;
  max_in_flight_ = options_.max_in_flight > 0 ? options_.max_in_flight : n;
  const int blocks = blocks_needed() + kSpareBlocks;
  segment_ = AsyncSegment::create(spaces_, {.num_workers = static_cast<int>(shares_.size()),
                                            .num_envs = n,
                                            .most_envs = most,
                                            .batch_size = options_.batch_size,
                                            .num_blocks = blocks,
                                            .mode = mode});
  board().set_segment(segment_.fd());
  state_ = CallState(n);
  flight_ = InFlight(n);
  seeds_.resize(static_cast<std::size_t>(n));
  leases_ = std::make_shared<Leases>(segment_, blocks);
  block_of_.assign(static_cast<std::size_t>(2 * blocks), -1);
  for (int b = blocks; b-- > 0;) free_.push_back(b);
  seen_.assign(static_cast<std::size_t>(n), 0);
  to_wake_.assign(shares_.size(), 0);
  all_slots_.resize(static_cast<std::size_t>(options_.batch_size));
  rows_that_came_.resize(all_slots_.size());
  std::iota(all_slots_.begin(), all_slots_.end(), std::size_t{0});
}

void AsyncVectorEnv::check_options() const {
  const int n = options_.num_envs;
  if (n > static_cast<int>(sync::Gather::kMaxArrivals)) {
    throw InvalidArgument(fmt::format("num_envs is {}; asynchronous environments are at most {}", n,
                                      sync::Gather::kMaxArrivals));
  }
  if (options_.batch_size < 0 || options_.batch_size > n) {
    throw InvalidArgument(fmt::format("batch_size is {}; it must be between 1 and num_envs={}",
                                      options_.batch_size, n));
  }
  if (options_.cohorts < 0 || (options_.cohorts > 0 && n % options_.cohorts != 0)) {
    throw InvalidArgument(
        fmt::format("cohorts is {}; it must divide num_envs={}, so that all are of one size",
                    options_.cohorts, n));
  }
  if (options_.cohorts > 0 && options_.batch_size > 0 &&
      options_.batch_size != n / options_.cohorts) {
    throw InvalidArgument(fmt::format(
        "batch_size is {}, but {} cohorts of {} environments have {} each; leave one of them out",
        options_.batch_size, options_.cohorts, n, n / options_.cohorts));
  }
  const int batch = options_.cohorts > 0      ? n / options_.cohorts
                    : options_.batch_size > 0 ? options_.batch_size
                                              : n;
  if (options_.max_in_flight != 0 &&
      (options_.max_in_flight < batch || options_.max_in_flight > n)) {
    throw InvalidArgument(
        fmt::format("max_in_flight is {}; it must be between batch_size={} and num_envs={}",
                    options_.max_in_flight, batch, n));
  }
}

// Blocks that may be open at a time.
int AsyncVectorEnv::blocks_needed() const noexcept {
  if (options_.cohorts > 0) return options_.cohorts;
  return (options_.num_envs + options_.batch_size - 1) / options_.batch_size;
}

void AsyncVectorEnv::begin_call(const char* call) {
  state_.require_idle(call);
  leases_->take_back(free_);
  static_cast<void>(look_around());
}

int AsyncVectorEnv::take_free_block() {
  SHOAL_CHECK(!free_.empty(), "there is a block for every order under way");
  const int block = free_.back();
  free_.pop_back();
  return block;
}

void AsyncVectorEnv::open(std::uint64_t sequence) {
  int& at = block_of_[sequence % block_of_.size()];
  if (at >= 0) return;
  at = take_free_block();
  const auto low = static_cast<std::uint32_t>(sequence);
  segment_.slots().open(low, static_cast<std::uint32_t>(at));
  segment_.block(at).gather->start(low, static_cast<std::uint32_t>(options_.batch_size));
}

// Says where the result of `row` goes, and opens the batch that it needs.
InboxEntry AsyncVectorEnv::order_for(std::size_t row, Order order) {
  const auto size = static_cast<std::uint64_t>(options_.batch_size);
  if (options_.cohorts == 0) {
    if (tickets_ == opened_) {
      open(tickets_ / size);
      opened_ += size;
    }
    ++tickets_;
    return {.row = static_cast<std::uint32_t>(row),
            .order = order,
            .block = InboxEntry::kArrival,
            .slot = 0,
            .sequence = 0};
  }
  if (turn_.seen_at != next_recv_ || row - turn_.first >= size) {
    // The cohort's next turn at recv(). The environment is not in flight, so this turn is not over.
    const auto cohorts = static_cast<std::uint64_t>(options_.cohorts);
    const std::uint64_t cohort = row / size;
    const std::uint64_t sequence = next_recv_ + (cohort + cohorts - next_recv_ % cohorts) % cohorts;
    open(sequence);
    turn_ = {.seen_at = next_recv_,
             .first = cohort * size,
             .block = static_cast<std::uint16_t>(block_of_[sequence % block_of_.size()]),
             .sequence = static_cast<std::uint32_t>(sequence)};
  }
  return {.row = static_cast<std::uint32_t>(row),
          .order = order,
          .block = turn_.block,
          .slot = static_cast<std::uint32_t>(row - turn_.first),
          .sequence = turn_.sequence};
}

void AsyncVectorEnv::push(InboxEntry entry, std::uint64_t now_ns) {
  InFlight::Env& env = flight_.env(entry.row);
  if (entry.order == Order::kReset) {
    env.was_reset = true;
    env.owes_fault = false;
    if (std::exchange(env.needs_renewal, false) && !std::exchange(env.renewing, true)) ++renewals_;
    if (env.hold != 0 && !env.dropped) end_back_off(entry.row);
    if (!all_drained(worker_of(static_cast<int>(entry.row)))) resume(entry.row);
  }
  const bool owes_fault = std::exchange(env.owes_fault, false);
  flight_.begin(entry, now_ns);
  if (owes_fault || env.dropped) {
    deliver_fault(entry.row, owes_fault ? RowFault::kFault : RowFault::kDropped);
  } else if (env.hold != 0) {
    env.held = true;
    ++held_;
  } else {
    post(entry.row);
  }
}

// Leaves the order of `row` in its worker's inbox.
void AsyncVectorEnv::post(std::size_t row) {
  InFlight::Env& env = flight_.env(row);
  if (env.needs_renewal && env.entry.order == Order::kStep) prepare_renewal(row);
  const int worker = worker_of(static_cast<int>(row));
  const auto tell_of = [&](std::vector<std::vector<std::byte>>& told, Order order) {
    if (told.empty()) return;
    const std::vector<std::byte> message = std::exchange(told[row], {});
    if (!message.empty() && env.entry.order == order) tell(worker, message);
  };
  tell_of(told_with_step_, Order::kStep);
  if (env.entry.order == Order::kReset) tell_of(told_with_reset_, Order::kReset);
  sync::SpscIndices& inbox = segment_.inbox(worker);
  segment_.entry(worker, inbox.write_index()) = env.entry;
  inbox.publish(1);
  to_wake_[static_cast<std::size_t>(worker)] = 1;
}

void AsyncVectorEnv::wake_all() {
  board().set_in_flight(flight_.count());
  const trace::Scope scope(trace::Span::kWake);
  for (std::size_t w = 0; w < to_wake_.size(); ++w) {
    if (std::exchange(to_wake_[w], std::uint8_t{0}) != 0) wake(static_cast<int>(w));
  }
  all_sent();
}

void AsyncVectorEnv::interrupt() noexcept {
  state_.interrupt();
  flight_.forget_resets();
}

void AsyncVectorEnv::require_sendable(std::span<const std::int64_t> env_ids) {
  begin_call("send");
  state_.require_uninterrupted("send");
  if (!flight_.sendable(env_ids)) {
    check_env_ids("send", env_ids, seen_);
    flight_.require_sendable(env_ids);
  }
  const int after = flight_.count() + static_cast<int>(env_ids.size());
  if (after > max_in_flight_) {
    throw AlreadyInFlight(fmt::format(
        "send: {} environments would be in flight, max_in_flight is {}; recv() first. Nothing was "
        "sent",
        after, max_in_flight_));
  }
}

void AsyncVectorEnv::tell_with_step(std::size_t row, std::vector<std::byte> message) {
  if (told_with_step_.empty()) told_with_step_.resize(static_cast<std::size_t>(num_envs()));
  told_with_step_[row] = std::move(message);
}

void AsyncVectorEnv::tell_with_reset(std::span<const std::int64_t> rows,
                                     std::vector<std::vector<std::byte>> messages) {
  if (messages.empty() && told_with_reset_.empty()) return;
  messages.resize(rows.size());
  told_with_reset_.resize(static_cast<std::size_t>(num_envs()));
  for (std::size_t i = 0; i < rows.size(); ++i)
    told_with_reset_[static_cast<std::size_t>(rows[i])] = std::move(messages[i]);
}

int AsyncVectorEnv::idle_worker() const noexcept {
  for (std::size_t w = 0; w < shares_.size(); ++w) {
    const auto first = static_cast<std::size_t>(shares_[w].first_env);
    const auto end = first + static_cast<std::size_t>(shares_[w].num_envs);
    std::size_t row = first;
    while (row < end && !flight_.env(row).in_flight) ++row;
    if (row == end) return static_cast<int>(w);
  }
  return 0;
}

void AsyncVectorEnv::send(std::span<const std::int64_t> env_ids) {
  require_sendable(env_ids);
  const std::uint64_t now_ns = os::now_ns();
  while (!env_ids.empty()) {
    env_ids = env_ids.subspan(post_steps(env_ids, now_ns));
    if (env_ids.empty()) break;
    const auto row = static_cast<std::size_t>(env_ids[0]);
    if (!is_left_out(row)) push(order_for(row, Order::kStep), now_ns);
    env_ids = env_ids.subspan(1);
  }
  wake_all();
}

// Leaves steps in the inbox of the first one's worker, up to one that is not this worker's or not
// just a step; returns how many.
std::size_t AsyncVectorEnv::post_steps(std::span<const std::int64_t> env_ids,
                                       std::uint64_t now_ns) {
  if (!told_with_step_.empty()) return 0;
  const int worker = worker_of(static_cast<int>(env_ids[0]));
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  sync::SpscIndices& inbox = segment_.inbox(worker);
  const std::uint32_t begin = inbox.write_index();
  std::size_t count = 0;
  for (const std::int64_t id : env_ids) {
    const auto row = static_cast<std::size_t>(id);
    const bool here = static_cast<std::uint64_t>(id - share.first_env) <
                      static_cast<std::uint64_t>(share.num_envs);
    if (!here || !flight_.env(row).just_steps()) break;
    const InboxEntry entry = order_for(row, Order::kStep);
    flight_.begin(entry, now_ns);
    segment_.entry(worker, begin + static_cast<std::uint32_t>(count++)) = entry;
  }
  if (count == 0) return 0;
  inbox.publish(static_cast<std::uint32_t>(count));
  to_wake_[static_cast<std::size_t>(worker)] = 1;
  return count;
}

void AsyncVectorEnv::require_resettable(std::span<const std::int64_t> env_ids) const {
  std::vector<std::int64_t> busy;
  for (const std::int64_t id : env_ids) {
    if (flight_.env(static_cast<std::size_t>(id)).in_flight) busy.push_back(id);
  }
  if (busy.empty()) return;
  throw AlreadyInFlight(fmt::format(
      "async_reset: {} {} in flight; recv() until they are back, or reset(), which throws away "
      "what is in flight. Nothing was reset",
      describe_envs(busy), busy.size() == 1 ? "is" : "are"));
}

void AsyncVectorEnv::send_reset(std::span<const std::optional<std::uint64_t>> seeds,
                                std::span<const std::uint8_t> mask) {
  begin_call("async_reset");
  const std::vector<std::size_t> rows = selected_rows("async_reset", seeds, mask);
  require_resettable(std::vector<std::int64_t>(rows.begin(), rows.end()));
  state_.begin_reset(mask);  // notes who was reset
  state_.finish();
  write_seeds(rows, seeds);
  drain_before_reset(rows);
  const std::uint64_t now_ns = os::now_ns();
  for (const std::size_t row : rows) {
    if (!is_left_out(row)) push(order_for(row, Order::kReset), now_ns);
  }
  ++resets_;
  wake_all();
}

// The environments whose results make batch `sequence`; empty in arrival order: any do.
std::vector<std::int64_t> AsyncVectorEnv::expected_ids(std::uint64_t sequence) const {
  std::vector<std::int64_t> ids;
  if (options_.cohorts == 0) return ids;
  const std::uint64_t cohort = sequence % static_cast<std::uint64_t>(options_.cohorts);
  const auto size = static_cast<std::size_t>(options_.batch_size);
  for (std::size_t slot = 0; slot < size; ++slot) {
    ids.push_back(static_cast<std::int64_t>(cohort * size + slot));
  }
  return ids;
}

void AsyncVectorEnv::require_batch() const {
  if (options_.cohorts == 0) {
    if (flight_.count() >= options_.batch_size) return;
    throw NothingInFlight(fmt::format(
        "recv: a batch is {} environments, {} {} in flight; send() at least {} more first",
        options_.batch_size, flight_.count(), flight_.count() == 1 ? "is" : "are",
        options_.batch_size - flight_.count()));
  }
  const std::uint64_t cohort = next_recv_ % static_cast<std::uint64_t>(options_.cohorts);
  const auto size = static_cast<std::size_t>(options_.batch_size);
  if (flight_.all_out(cohort * size, size)) return;
  std::vector<std::int64_t> missing;
  const std::vector<std::int64_t> ids = expected_ids(next_recv_);
  for (const std::int64_t id : ids) {
    if (!flight_.env(static_cast<std::size_t>(id)).in_flight) missing.push_back(id);
  }
  throw NothingInFlight(fmt::format(
      "recv: the next cohort is environments {} to {}, of which {} {} not in flight; send() the "
      "missing ones first",
      ids.front(), ids.back(), describe_envs(missing), missing.size() == 1 ? "is" : "are"));
}

Arrivals AsyncVectorEnv::recv(std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_idle("recv");
  state_.require_uninterrupted("recv");
  if (flight_.dropped() > 0) fill_with_dropped();
  require_batch();
  const int b = block_of_[next_recv_ % block_of_.size()];
  const AsyncBlock& block = segment_.block(b);
  const auto sequence = static_cast<std::uint32_t>(next_recv_);
  wait_for({block, segment_.slots(), static_cast<std::uint32_t>(b), sequence, all_slots_}, timeout);
  take_rows(block, all_slots_);
  take_large_infos(block, all_slots_, sequence);
  take_failures(block, all_slots_);
  if (renewals_ > 0) settle_renewals(block, all_slots_);
  ++batches_;
  return hand_out(next_recv_);
}

std::function<bool(os::Deadline)> AsyncVectorEnv::awaited_batch() {
  const CallState::Call call = state_.call();
  const bool together = call == CallState::Call::kStep || call == CallState::Call::kReset;
  const int block = together ? segment_.home_block() : block_of_[next_recv_ % block_of_.size()];
  if (!together && (call != CallState::Call::kNone || state_.closed() || block < 0)) return {};
  return [gather = segment_.block(block).gather](os::Deadline deadline) {
    return gather->park(deadline) == sync::WaitOutcome::kReady;
  };
}

// Batch `sequence` is ready. Lends its block, or a copy of it when too few would be left.
Arrivals AsyncVectorEnv::hand_out(std::uint64_t sequence) {
  const int b = std::exchange(block_of_[sequence % block_of_.size()], -1);
  const AsyncBlock& block = segment_.block(b);
  settle_ends(block, all_slots_);
  Arrivals arrivals;
  gather_infos(block, all_slots_, arrivals.infos);
  gather_faults(block, all_slots_);
  for (const std::size_t row : rows_that_came_) flight_.end(row);
  board().set_in_flight(flight_.count());
  ++next_recv_;
  leases_->take_back(free_);
  const int left = segment_.num_blocks() - leases_->lent() - 1;
  std::shared_ptr<const AsyncBlock> given;
  if (left >= blocks_needed()) {
    given = leases_->lend(b);
  } else {
    given = leases_->copy(b, spaces_);
    free_.push_back(b);
  }
  arrivals.batch = batch_of(given->rows);
  arrivals.env_ids = given->env_ids;
  arrivals.lease = std::move(given);
  return arrivals;
}

// Whose results lie in these slots. Workers say so in memory that they share, and another may write
// over it: what is checked here is what is used.
void AsyncVectorEnv::take_rows(const AsyncBlock& block, std::span<const std::size_t> slots) {
  bool good = true;
  std::size_t taken = 0;
  for (; good && taken < slots.size(); ++taken) {
    const auto row = static_cast<std::uint64_t>(block.env_ids[slots[taken]]);
    good = row < seen_.size() && flight_.env(row).in_flight && seen_[row] == 0;
    if (!good) break;
    seen_[row] = 1;
    rows_that_came_[slots[taken]] = row;
  }
  for (std::size_t i = 0; i < taken; ++i) seen_[rows_that_came_[slots[i]]] = 0;
  if (!good) throw_overwritten();
}

void AsyncVectorEnv::throw_overwritten() {
  const char* const why = "a worker has written over the memory that says whose results came";
  state_.fail(why);
  throw Error(why);
}

// What had no room in the block. Where it was lost with its worker, so was the step: its
// observation may be in there.
void AsyncVectorEnv::take_large_infos(const AsyncBlock& block, std::span<const std::size_t> slots,
                                      std::uint32_t sequence) {
  large_infos_.clear();
  if (!said_anything(block)) return;
  for (const std::size_t slot : slots) {
    if (block.info_sizes[slot] != AsyncBlock::kInfoElsewhere) continue;
    const std::size_t row = row_at(block, slot);
    if (auto info = take_info(static_cast<int>(row), sequence, !flight_.env(row).outlived)) {
      large_infos_[slot] = *std::move(info);
    } else {
      end_as_fault(row, block, slot, RowFault::kFault);
    }
  }
}

std::span<const std::byte> AsyncVectorEnv::info_of(const AsyncBlock& block,
                                                   std::size_t slot) const {
  const std::uint32_t size = block.info_sizes[slot];
  if (size == AsyncBlock::kInfoElsewhere) {
    const auto found = large_infos_.find(slot);
    return found == large_infos_.end() ? std::span<const std::byte>{} : found->second;
  }
  return std::span<const std::byte>(block.info(slot))
      .first(size <= AsyncBlock::kInfoBytes ? size : 0);
}

void AsyncVectorEnv::gather_infos(const AsyncBlock& block, std::span<const std::size_t> slots,
                                  std::vector<Arrivals::Info>& infos) const {
  if (!said_anything(block)) return;
  for (const std::size_t slot : slots) {
    const auto bytes = info_of(block, slot);
    if (!bytes.empty()) infos.push_back({.slot = static_cast<int>(slot), .bytes = bytes});
  }
}

void AsyncVectorEnv::gather_faults(const AsyncBlock& block, std::span<const std::size_t> slots) {
  row_faults_.clear();
  if (!any_not_zero<std::uint8_t>(block.rows.fault)) return;
  for (const std::size_t slot : slots) {
    if (block.rows.fault[slot] != static_cast<std::uint8_t>(RowFault::kFault)) continue;
    if (Fault fault = fault_of(static_cast<int>(row_at(block, slot)))) {
      row_faults_.push_back({static_cast<int>(slot), std::move(fault)});
    }
  }
}

void AsyncVectorEnv::take_failures(const AsyncBlock& block, std::span<const std::size_t> slots) {
  if (!any_not_zero<std::uint8_t>(block.rows.fault)) return;
  for (const std::size_t slot : slots) {
    if (block.rows.fault[slot] != AsyncBlock::kFailed) continue;
    const std::size_t row = row_at(block, slot);
    const auto bytes = info_of(block, slot);
    const std::vector<std::byte> report(bytes.begin(), bytes.end());
    on_failure(static_cast<int>(row), report);
    if (state_.interrupted()) {
      block.rows.fault[slot] = 0;
      continue;
    }
    end_as_fault(row, block, slot, RowFault::kFault);
  }
}

void AsyncVectorEnv::wait_for(const Target& target,
                              std::optional<std::chrono::nanoseconds> timeout) {
  const std::uint64_t start_ns = os::now_ns();
  const CallState::Call call = state_.call();
  board().waiting(call == CallState::Call::kNone ? CallState::Call::kStep : call, start_ns);
  const os::Deadline deadline = timeout ? os::deadline_after(*timeout) : os::kNoDeadline;
  std::size_t ready = 0;  // of those wanted, from the first on
  const auto complete = [&] {
    // Whoever has arrived was ready before; who died in between leaves the count as it is.
    if (target.block.gather->left() == 0) return true;
    while (ready < target.wanted.size() &&
           target.slots.is_ready({target.sequence, target.word_block,
                                  static_cast<std::uint32_t>(target.wanted[ready])})) {
      ++ready;
    }
    return ready == target.wanted.size();
  };
  while (!complete()) {
    if (held_ > 0 && pass_over_the_down(target)) continue;
    const os::Deadline slice_end =
        std::min(deadline, os::deadline_after(is_unsettled() ? kShortSlice : kSlice));
    ++parks_;
    const sync::WaitOutcome outcome = await(*target.block.gather, slice_end);
    if (complete()) break;
    if (outcome != sync::WaitOutcome::kReady && look_around()) continue;
    if (options_.interrupt_check) options_.interrupt_check();
    if (os::Clock::now() >= deadline) {
      wait_ns_ += os::now_ns() - start_ns;
      throw_timed_out();
    }
  }
  const std::uint64_t now_ns = os::now_ns();
  wait_ns_ += now_ns - start_ns;
  trace::note(trace::Span::kWait, start_ns, now_ns, target.sequence);
  const std::uint64_t received = batches_ + (call == CallState::Call::kNone ? 1 : 0);
  board().received({.batches = received,
                    .env_steps = received * static_cast<std::uint64_t>(options_.batch_size),
                    .resets = resets_,
                    .wait_ns = wait_ns_},
                   now_ns);
}

bool AsyncVectorEnv::is_ready(std::size_t row) const noexcept {
  const InFlight::Env& env = flight_.env(row);
  auto& self = const_cast<AsyncVectorEnv&>(*this);
  const InboxEntry& entry = env.entry;
  if (entry.block == segment_.home_block()) {
    return self.segment_.home_slots().is_ready({entry.sequence, 0, entry.slot});
  }
  if (entry.block != InboxEntry::kArrival) {
    return self.segment_.slots().is_ready({entry.sequence, entry.block, entry.slot});
  }
  for (const int block : block_of_) {
    if (block < 0) continue;
    for (std::uint32_t slot = 0; slot < segment_.slots_per_block(); ++slot) {
      const sync::SlotWord word =
          self.segment_.slots().look(static_cast<std::uint32_t>(block), slot);
      if (word.state == sync::SlotState::kReady && word.claimer == row) return true;
    }
  }
  return false;
}

void AsyncVectorEnv::throw_timed_out() {
  std::vector<std::int64_t> late;
  const bool cohort = state_.call() == CallState::Call::kNone && options_.cohorts > 0;
  for (const std::int64_t id : cohort ? expected_ids(next_recv_) : flight_.ids()) {
    if (!is_ready(static_cast<std::size_t>(id))) late.push_back(id);
  }
  throw TimedOut(
      fmt::format("{}: {} did not end in time. It stays in flight: call again, or close()",
                  state_.call() == CallState::Call::kNone ? "recv" : "wait",
                  flight_.describe_late(late, os::now_ns())));
}

}  // namespace shoal::vector
