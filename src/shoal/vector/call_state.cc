#include "shoal/vector/call_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/vector/spaces_differ.h"

namespace shoal::vector {
namespace {

const char* name_of(CallState::Call call) {
  switch (call) {
    case CallState::Call::kReset:
      return "reset";
    case CallState::Call::kStep:
      return "step";
    case CallState::Call::kRequest:
      return "request";
    case CallState::Call::kNone:
      break;
  }
  return "nothing";
}

template <class Element>
void check_length(std::span<Element> values, int num_envs, const char* what) {
  if (!values.empty() && values.size() != static_cast<std::size_t>(num_envs)) {
    throw InvalidArgument(
        fmt::format("reset: the length of {} must match num_envs={} but got length={}", what,
                    num_envs, values.size()));
  }
}

}  // namespace

void CallState::require_open(const char* what) const {
  if (!failure_.empty()) {
    throw InvalidState(fmt::format(
        "{}: these environments are closed, because {}; make new ones to go on", what, failure_));
  }
  if (closed_) throw InvalidState(fmt::format("{}: these environments are closed", what));
}

void CallState::require_idle(const char* what) const {
  require_open(what);
  if (call_ != Call::kNone) {
    throw InvalidState(
        fmt::format("{}: a {} is still under way; wait for it first", what, name_of(call_)));
  }
}

void CallState::begin_reset(std::span<const std::uint8_t> mask) {
  require_idle("reset");
  if (mask.empty()) {
    std::fill(never_reset_.begin(), never_reset_.end(), std::uint8_t{0});
  } else {
    for (std::size_t i = 0; i < never_reset_.size(); ++i) {
      if (mask[i] != 0) never_reset_[i] = 0;
    }
  }
  interrupted_ = false;
  all_reset_ = std::find(never_reset_.begin(), never_reset_.end(), 1) == never_reset_.end();
  call_ = Call::kReset;
}

void CallState::begin_step() {
  require_idle("step");
  require_uninterrupted("step");
  if (!all_reset_) {
    const auto first = std::find(never_reset_.begin(), never_reset_.end(), 1);
    throw InvalidState(
        fmt::format("step: environment {} has not been reset yet; call reset() first",
                    first - never_reset_.begin()));
  }
  call_ = Call::kStep;
}

void CallState::require_uninterrupted(const char* what) const {
  if (!interrupted_) return;
  throw InvalidState(
      fmt::format("{}: the call before was interrupted in the midst of an environment; reset() all "
                  "of them first",
                  what));
}

void CallState::interrupt() noexcept {
  finish();
  interrupted_ = true;
  all_reset_ = false;
  std::fill(never_reset_.begin(), never_reset_.end(), std::uint8_t{1});
}

void CallState::begin_request() {
  require_idle("request");
  call_ = Call::kRequest;
}

CallState::Call CallState::require_pending() const {
  if (call_ == Call::kReset || call_ == Call::kStep) return call_;
  require_idle("wait");
  throw InvalidState("wait: nothing is under way; call reset_async() or step_async() first");
}

void CallState::require_pending_request() const {
  if (call_ == Call::kRequest) return;
  require_idle("request_wait");
  throw InvalidState("request_wait: nothing was asked; call request_async() first");
}

void CallState::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
  call_ = Call::kNone;
}

void CallState::close() noexcept {
  closed_ = true;
  call_ = Call::kNone;
}

void write_reset_rows(const Rows& rows, std::span<const std::optional<std::uint64_t>> seeds,
                      std::span<const std::uint8_t> mask) {
  check_length(seeds, rows.num_envs, "seeds");
  check_length(mask, rows.num_envs, "mask");
  if (!mask.empty() && std::all_of(mask.begin(), mask.end(), [](auto m) { return m == 0; })) {
    throw InvalidArgument("reset: the mask selects no environment");
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows.num_envs); ++i) {
    const bool has_seed = !seeds.empty() && seeds[i].has_value();
    rows.reset_mask[i] = mask.empty() || mask[i] != 0;
    rows.has_seed[i] = has_seed;
    rows.seed[i] = has_seed ? *seeds[i] : 0;
  }
}

Batch batch_of(const Rows& rows) noexcept {
  return {.obs = rows.obs,
          .reward = rows.reward,
          .terminated = rows.terminated,
          .truncated = rows.truncated,
          .reset = rows.reset,
          .fault = rows.fault,
          .final_obs = rows.final_obs,
          .has_final = rows.has_final,
          .episode_return = rows.episode_return,
          .episode_length = rows.episode_length,
          .episode_seconds = rows.episode_seconds};
}

void check_same_spaces(const Hello& first, const Hello& other, int env) {
  const auto check = [env](const env::Space& expected, const env::Space& got, const char* what) {
    if (expected == got) return;
    throw SpacesDiffer(
        fmt::format("environment {} has another {} space than environment 0: {} against {}; all "
                    "environments of "
                    "one batch must have the same spaces",
                    env, what, got.repr(), expected.repr()));
  };
  check(first.observation_space, other.observation_space, "observation");
  check(first.action_space, other.action_space, "action");
}

Hello common_spaces(std::span<const std::unique_ptr<Stepper>> steppers) {
  if (steppers.empty())
    throw InvalidArgument("a vector environment needs at least one environment");
  Hello first = steppers.front()->hello();
  int env = 0;
  for (const auto& stepper : steppers) {
    check_same_spaces(first, stepper->hello(), env);
    env += stepper->count();
  }
  return first;
}

int count_envs(std::span<const std::unique_ptr<Stepper>> steppers) noexcept {
  int n = 0;
  for (const auto& stepper : steppers) n += stepper->count();
  return n;
}

int envs_of_worker(int num_envs, int num_workers, int worker) noexcept {
  return num_envs / num_workers + (worker < num_envs % num_workers ? 1 : 0);
}

}  // namespace shoal::vector
