// AsyncVectorEnv: environments that wait between two episodes until their worker is replaced.
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "shoal/vector/async/async_vector_env.h"

namespace shoal::vector {

// Of one that is not in flight. With autoreset disabled what follows an end is the caller's affair.
bool AsyncVectorEnv::is_between_episodes(std::size_t row) const noexcept {
  const InFlight::Env& env = flight_.env(row);
  if (env.in_flight || autoreset_mode() == AutoresetMode::kDisabled) return false;
  return env.ended || env.needs_renewal || !env.was_reset;
}

void AsyncVectorEnv::mark_drained(std::size_t row) { flight_.env(row).hold |= InFlight::kDrained; }

// Relaxed: an environment that does not see it is reset at once, and is drained another time.
void AsyncVectorEnv::set_draining(int worker, bool draining) noexcept {
  segment_.cell(worker).hold_resets.store(draining ? 1 : 0, std::memory_order_relaxed);
}

bool AsyncVectorEnv::is_draining(int worker) const noexcept {
  return segment_.cell(worker).hold_resets.load(std::memory_order_relaxed) != 0;  // relaxed: ours
}

void AsyncVectorEnv::begin_draining(int worker) {
  set_draining(worker, true);
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    const auto row = static_cast<std::size_t>(i);
    if (is_between_episodes(row)) mark_drained(row);
  }
}

bool AsyncVectorEnv::all_drained(int worker) const noexcept {
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    const InFlight::Env& env = flight_.env(static_cast<std::size_t>(i));
    if (!env.dropped && (env.hold & InFlight::kDrained) == 0) return false;
  }
  return true;
}

void AsyncVectorEnv::end_draining(int worker) {
  set_draining(worker, false);
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    resume(static_cast<std::size_t>(i));
  }
}

void AsyncVectorEnv::replace(int worker, bool keep_generators) {
  set_draining(worker, false);
  const Share& share = shares_[static_cast<std::size_t>(worker)];
  for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
    const auto row = static_cast<std::size_t>(i);
    InFlight::Env& env = flight_.env(row);
    const bool reset_comes = env.held && env.entry.order == Order::kReset;
    if (!keep_generators && !reset_comes) env.needs_renewal = true;
    release(row, InFlight::kDrained);
  }
}

// Drained, and for nothing: its worker cannot go before the caller sends others of its environments.
bool AsyncVectorEnv::is_stuck(std::size_t row) const noexcept {
  const InFlight::Env& env = flight_.env(row);
  return env.held && (env.hold & InFlight::kDrained) != 0 &&
         !all_drained(worker_of(static_cast<int>(row)));
}

// A drained environment goes on where it is.
void AsyncVectorEnv::resume(std::size_t row) {
  if ((flight_.env(row).hold & InFlight::kDrained) != 0) release(row, InFlight::kDrained);
}

VectorEnv::Presence AsyncVectorEnv::presence(int env) const {
  const InFlight::Env& state = flight_.env(static_cast<std::size_t>(env));
  if (state.dropped) return Presence::kDropped;
  return state.needs_renewal ? Presence::kNew : Presence::kThere;
}

void AsyncVectorEnv::restored(int env) {
  const auto row = static_cast<std::size_t>(env);
  InFlight::Env& state = flight_.env(row);
  state.ended = state.owes_fault = false;
  if (std::exchange(state.needs_renewal, false)) {
    end_back_off(row);
    is_back(row);
  }
  resume(row);
}

// A reset of all environments of a worker is between episodes.
void AsyncVectorEnv::drain_before_reset(std::span<const std::size_t> rows) {
  for (std::size_t w = 0; w < shares_.size(); ++w) {
    if (!is_draining(static_cast<int>(w))) continue;
    const auto first = static_cast<std::size_t>(shares_[w].first_env);
    const auto end = first + static_cast<std::size_t>(shares_[w].num_envs);
    std::size_t chosen = 0;
    for (const std::size_t row : rows) chosen += row >= first && row < end ? 1 : 0;
    if (chosen != end - first) continue;
    for (std::size_t row = first; row < end; ++row) mark_drained(row);
  }
}

// Notes whose episode has ended. It is drained where its worker is to go.
void AsyncVectorEnv::settle_ends(const AsyncBlock& block, std::span<const std::size_t> slots) {
  const Rows& rows = block.rows;
  const bool same_step = autoreset_mode() == AutoresetMode::kSameStep;
  for (const std::size_t slot : slots) {
    const std::size_t row = row_at(block, slot);
    InFlight::Env& env = flight_.env(row);
    env.ended = (rows.terminated[slot] | rows.truncated[slot]) != 0 && rows.has_final[slot] == 0;
    if (!env.ended) continue;
    if (autoreset_mode() != AutoresetMode::kDisabled &&
        is_draining(worker_of(static_cast<int>(row)))) {
      mark_drained(row);
    }
    if (!same_step || rows.fault[slot] != 0) continue;
    // Its reset was held back.
    for (std::size_t leaf = 0; leaf < rows.obs.size(); ++leaf) {
      const auto at = static_cast<std::int64_t>(slot);
      std::memcpy(rows.final_obs[leaf].row_data(at), rows.obs[leaf].row_data(at),
                  rows.obs[leaf].row_bytes());
    }
    rows.has_final[slot] = 1;
  }
}

// For a batch that cannot be filled without environments that are stuck. Where the caller has sent
// the others of their worker, their rows fill it as down; else they go on where they are. True when
// there was one.
bool AsyncVectorEnv::fill_with_drained() {
  std::vector<std::size_t> stuck;
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_envs()); ++row) {
    if (is_stuck(row)) stuck.push_back(row);
  }
  int missing = options_.batch_size - (flight_.count() - static_cast<int>(stuck.size()));
  bool any = false;
  for (const std::size_t row : stuck) {
    if (missing-- <= 0) break;
    any = true;
    const Share& share = shares_[static_cast<std::size_t>(worker_of(static_cast<int>(row)))];
    bool others_are_out = true;
    for (int i = share.first_env; i < share.first_env + share.num_envs; ++i) {
      const InFlight::Env& other = flight_.env(static_cast<std::size_t>(i));
      others_are_out = others_are_out &&
                       (other.in_flight || other.dropped || (other.hold & InFlight::kDrained) != 0);
    }
    if (others_are_out) {
      pass_over(row);
    } else {
      resume(row);
    }
  }
  if (any) wake_all();
  return any;
}

}  // namespace shoal::vector
