// Makes a BatchEnv of a plain struct whose step is inlined into the loop: how Shoal's own
// environments are written.
#pragma once

#include <fmt/format.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "shoal/env/batch_env.h"
#include "shoal/env/env.h"
#include "shoal/os/error.h"

namespace shoal::env {

/// A copyable struct with float32 observations of one dimension. `Action` is std::int64_t for a
/// Discrete action space that starts at 0 (kActions says how many there are), or std::span<const
/// float, N> for a Box of one dimension.
template <class T>
concept PlainEnv = std::copyable<T> &&
                   requires(T env, const T& view, NpRandom& random, typename T::Action action,
                            std::span<float, T::kObservations> obs, std::span<const double> state) {
                     { T::observation_space() } -> std::same_as<Space>;
                     { T::action_space() } -> std::same_as<Space>;
                     { env.reset(random, obs) } -> std::same_as<void>;
                     { env.step(action, obs) } -> std::same_as<Outcome>;
                     { view.state() } -> std::same_as<std::vector<double>>;
                     { env.set_state(state) } -> std::same_as<void>;
                   };

/// A PlainEnv that can step kLanes of its kind together, faster than one after the other and with
/// the same bits.
template <class T>
concept StepsInLanes =
    requires(T* const* envs, const typename T::Action* actions, float* obs, Outcome* outcomes) {
      { T::step_lanes(envs, actions, obs, outcomes) } -> std::same_as<void>;
    } && T::kLanes > 0;

/// A PlainEnv whose resets take options.
template <class T>
concept TakesResetOptions = requires(
    T env, NpRandom& random, std::span<float, T::kObservations> obs, const ResetOptions& options) {
  { env.reset(random, obs, options) } -> std::same_as<void>;
  { T::check_reset_options(options) } -> std::same_as<void>;
};

namespace internal {
/// Throw InvalidArgument unless the samples of a PlainEnv's space (`which`: "observation" or "action") are one array
/// of `elements` float32, as `constant` says; unless they are one int64 of [0, choices), as kActions says.
void check_floats(const char* which, const Space& space, const char* constant,
                  std::size_t elements);
void check_choices(const char* which, const Space& space, std::int64_t choices);
}  // namespace internal

/// `count` copies of a PlainEnv, each with its own random stream, under one time limit.
template <PlainEnv T>
class BatchOf final : public BatchEnv {
 public:
  /// `max_episode_steps` 0: no limit. Throws InvalidArgument where T's spaces are not what kObservations and
  /// Action say.
  BatchOf(int count, int max_episode_steps, const T& prototype)
      : observation_space_(T::observation_space()),
        action_space_(T::action_space()),
        max_episode_steps_(max_episode_steps),
        slots_(static_cast<std::size_t>(count), Slot{prototype}),
        random_(static_cast<std::size_t>(count)) {
    internal::check_floats("observation", observation_space_, "kObservations", T::kObservations);
    if constexpr (std::is_same_v<typename T::Action, std::int64_t>) {
      internal::check_choices("action", action_space_, T::kActions);
    } else {
      internal::check_floats("action", action_space_, "the extent of Action", T::Action::extent);
    }
  }

  const Space& observation_space() const noexcept override { return observation_space_; }
  const Space& action_space() const noexcept override { return action_space_; }
  int count() const noexcept override { return static_cast<int>(slots_.size()); }

  void reset(int i, std::optional<std::uint64_t> seed) override { reset_with(i, seed, {}); }

  void reset_with(int i, std::optional<std::uint64_t> seed, const ResetOptions& options) override {
    const auto at = static_cast<std::size_t>(i);
    if (seed) random_[at].seed(*seed);
    slots_[at].elapsed = 0;
    if constexpr (TakesResetOptions<T>) {
      slots_[at].env.reset(random_[at], obs(at), options);
    } else {
      check_reset_options(options);
      slots_[at].env.reset(random_[at], obs(at));
    }
    write(at, Outcome{});
  }

  void check_reset_options(const ResetOptions& options) const override {
    if constexpr (TakesResetOptions<T>) {
      T::check_reset_options(options);
    } else {
      options.expect_only({});
    }
  }

  void step_range(int lo, int hi) override {
    auto begin = static_cast<std::size_t>(lo);
    const auto end = static_cast<std::size_t>(hi);
    if constexpr (StepsInLanes<T>) {
      while (begin + T::kLanes <= end && step_lanes(begin)) begin += T::kLanes;
    }
    for (std::size_t i = begin; i < end; ++i) {
      Slot& slot = slots_[i];
      if (slot.elapsed < 0)
        throw InvalidState(fmt::format("step of environment {} before its reset", i));
      Outcome outcome = slot.env.step(action(i), obs(i));
      outcome.truncated |= ++slot.elapsed >= max_episode_steps_ && max_episode_steps_ > 0;
      write(i, outcome);
    }
  }

  std::vector<double> state(int i) const override {
    return slots_[static_cast<std::size_t>(i)].env.state();
  }

  void set_state(int i, std::span<const double> state) override {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    const std::size_t expected = slot.env.state().size();
    if (state.size() != expected) {
      throw InvalidArgument(
          fmt::format("set_state of environment {}: {} numbers given, its state has {}", i,
                      state.size(), expected));
    }
    slot.env.set_state(state);
    if (slot.elapsed < 0) slot.elapsed = 0;
  }

  std::vector<std::byte> save(int i) const override {
    if constexpr (std::is_trivially_copyable_v<Slot>) {
      const auto at = static_cast<std::size_t>(i);
      std::vector<std::byte> state(kStateBytes);
      std::memcpy(state.data(), &slots_[at], sizeof(Slot));
      std::memcpy(state.data() + sizeof(Slot), &random_[at], sizeof(NpRandom));
      return state;
    } else {
      return BatchEnv::save(i);
    }
  }

  void load(int i, std::span<const std::byte> state) override {
    if constexpr (std::is_trivially_copyable_v<Slot>) {
      if (state.size() != kStateBytes) {
        throw InvalidArgument(
            fmt::format("a state of {} bytes is not of this environment: its has {}", state.size(),
                        kStateBytes));
      }
      const auto at = static_cast<std::size_t>(i);
      std::memcpy(static_cast<void*>(&slots_[at]), state.data(), sizeof(Slot));
      std::memcpy(static_cast<void*>(&random_[at]), state.data() + sizeof(Slot), sizeof(NpRandom));
    } else {
      BatchEnv::load(i, state);
    }
  }

 private:
  struct Slot {
    T env;
    std::int32_t elapsed = -1;  // steps since the reset; -1: never reset
  };

  /// Steps environments [first, first + kLanes); false, with nothing done, where one of them cannot
  /// be.
  bool step_lanes(std::size_t first) {
    constexpr std::size_t kLanes = T::kLanes;
    std::array<T*, kLanes> envs;
    std::array<typename T::Action, kLanes> actions;
    bool fit = true;
    for (std::size_t k = 0; k < kLanes; ++k) {
      envs[k] = &slots_[first + k].env;
      actions[k] = reinterpret_cast<const typename T::Action*>(rows().actions[0].data)[first + k];
      fit &= slots_[first + k].elapsed >= 0 && actions[k] >= 0 && actions[k] < T::kActions;
    }
    if (!fit) return false;
    std::array<Outcome, kLanes> outcomes;
    T::step_lanes(envs.data(), actions.data(), obs(first).data(), outcomes.data());
    for (std::size_t k = 0; k < kLanes; ++k) {
      outcomes[k].truncated |=
          ++slots_[first + k].elapsed >= max_episode_steps_ && max_episode_steps_ > 0;
      write(first + k, outcomes[k]);
    }
    return true;
  }

  static constexpr std::size_t kStateBytes = sizeof(Slot) + sizeof(NpRandom);

  std::span<float, T::kObservations> obs(std::size_t i) const noexcept {
    auto* const data = reinterpret_cast<float*>(rows().obs[0].data);
    return std::span<float, T::kObservations>(data + i * T::kObservations, T::kObservations);
  }

  typename T::Action action(std::size_t i) const {
    const std::byte* const data = rows().actions[0].data;
    if constexpr (std::is_same_v<typename T::Action, std::int64_t>) {
      const std::int64_t chosen = reinterpret_cast<const std::int64_t*>(data)[i];
      if (chosen < 0 || chosen >= T::kActions) {
        throw InvalidArgument(fmt::format("action {} of environment {} is not in {}", chosen, i,
                                          action_space_.repr()));
      }
      return chosen;
    } else {
      constexpr std::size_t kSize = T::Action::extent;
      return typename T::Action(reinterpret_cast<const float*>(data) + i * kSize, kSize);
    }
  }

  void write(std::size_t i, const Outcome& outcome) const noexcept {
    rows().reward[i] = outcome.reward;
    rows().terminated[i] = outcome.terminated;
    rows().truncated[i] = outcome.truncated;
  }

  Space observation_space_;
  Space action_space_;
  std::int32_t max_episode_steps_;
  std::vector<Slot> slots_;
  std::vector<NpRandom> random_;
};

}  // namespace shoal::env
