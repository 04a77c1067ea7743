// For tests: a vector environment whose every observation, reward and end follows from a script.
//
// Environment i, in its episode e, at step s of it, shows the observation 1000 i + 100 e + s; a
// step gives the reward s (the number of steps taken in the episode, itself included). Episode e of
// environment i ends as script[i][e] says, by default never.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/vector/vector_env.h"

namespace shoal::collect {

struct ScriptedEpisode {
  int length = 0;
  bool terminated = true;  // false: truncated
};

class ScriptedVectorEnv final : public vector::VectorEnv {
 public:
  /// `box`: takes floats within [-1, 1] instead of indices.
  ScriptedVectorEnv(std::vector<std::vector<ScriptedEpisode>> script, vector::AutoresetMode mode,
                    bool box = false)
      : script_(std::move(script)), mode_(mode), n_(static_cast<int>(script_.size())) {
    const auto n = script_.size();
    for (auto* array : {&obs_, &final_obs_}) array->resize(n);
    actions_.resize(n);
    reward_.resize(n);
    for (auto* array : {&terminated_, &truncated_, &reset_, &fault_, &has_final_, &due_})
      array->resize(n);
    episode_.resize(n);
    step_.resize(n);
    const shm::TensorSpec f32{shm::DType::kF32, {1}};
    obs_view_ = {reinterpret_cast<std::byte*>(obs_.data()), n_, f32};
    final_view_ = {reinterpret_cast<std::byte*>(final_obs_.data()), n_, f32};
    action_view_ = {reinterpret_cast<std::byte*>(actions_.data()), n_, {shm::DType::kI64, {}}};
    if (!box) return;
    action_space_ = env::Space{env::Box{f32, {-1}, {1}}};
    action_view_ = {reinterpret_cast<std::byte*>(actions_.data()), n_, f32};
  }

  /// The worker of `env` dies in the `step`-th step_async() (counted from 0); the step after it
  /// resets.
  void die(int step, int env) { deaths_[{step, env}] = true; }
  /// Actions of the last step.
  std::span<const std::int64_t> taken() const { return actions_; }
  std::span<const std::optional<std::uint64_t>> seeds() const { return seeds_; }
  /// Calls of step_async().
  int calls() const { return calls_; }

  int num_envs() const noexcept override { return n_; }
  int num_workers() const noexcept override { return 1; }
  const env::Space& single_observation_space() const noexcept override {
    return observation_space_;
  }
  const env::Space& single_action_space() const noexcept override { return action_space_; }
  vector::AutoresetMode autoreset_mode() const noexcept override { return mode_; }
  std::span<const shm::TensorView> actions() const noexcept override { return {&action_view_, 1}; }

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t>) override {
    seeds_.assign(seeds.begin(), seeds.end());
    for (std::size_t i = 0; i < script_.size(); ++i) {
      episode_[i] = 0;
      begin_episode(i);
      clear(i);
    }
  }

  void step_async() override {
    for (std::size_t i = 0; i < script_.size(); ++i) step_one(i);
    ++calls_;
  }

  vector::Batch wait(std::optional<std::chrono::nanoseconds>) override {
    const bool same_step = mode_ == vector::AutoresetMode::kSameStep;
    return {.obs = {&obs_view_, 1},
            .reward = reward_,
            .terminated = terminated_,
            .truncated = truncated_,
            .reset = reset_,
            .fault = fault_,
            .final_obs = {&final_view_, same_step ? 1U : 0U},
            .has_final = has_final_};
  }

  void close() noexcept override {}

 private:
  void clear(std::size_t i) {
    reward_[i] = 0;
    terminated_[i] = truncated_[i] = reset_[i] = fault_[i] = has_final_[i] = 0;
  }

  void begin_episode(std::size_t i) {
    step_[i] = 0;
    due_[i] = 0;
    show(i);
  }

  void show(std::size_t i) {
    obs_[i] = static_cast<float>(1000 * static_cast<int>(i) + 100 * episode_[i] + step_[i]);
  }

  void step_one(std::size_t i) {
    clear(i);
    if (deaths_.contains({calls_, static_cast<int>(i)})) {
      truncated_[i] = fault_[i] = due_[i] = 1;
      return;
    }
    if (due_[i] != 0) {
      ++episode_[i];
      begin_episode(i);
      reset_[i] = 1;
      return;
    }
    ++step_[i];
    reward_[i] = step_[i];
    show(i);
    const auto& episodes = script_[i];
    const auto e = static_cast<std::size_t>(episode_[i]);
    if (e >= episodes.size() || step_[i] < episodes[e].length) return;
    (episodes[e].terminated ? terminated_ : truncated_)[i] = 1;
    if (mode_ == vector::AutoresetMode::kNextStep) {
      due_[i] = 1;
      return;
    }
    final_obs_[i] = obs_[i];
    has_final_[i] = reset_[i] = 1;
    ++episode_[i];
    begin_episode(i);
  }

  std::vector<std::vector<ScriptedEpisode>> script_;
  vector::AutoresetMode mode_;
  int n_;
  env::Space observation_space_{env::Box{{shm::DType::kF32, {1}}, {-1e9}, {1e9}}};
  env::Space action_space_{env::Discrete{.n = 3, .start = 5, .dtype = shm::DType::kI64}};
  std::vector<float> obs_, final_obs_;
  std::vector<std::int64_t> actions_;
  std::vector<double> reward_;
  std::vector<std::uint8_t> terminated_, truncated_, reset_, fault_, has_final_, due_;
  std::vector<int> episode_, step_;
  std::vector<std::optional<std::uint64_t>> seeds_;
  std::map<std::pair<int, int>, bool> deaths_;
  int calls_ = 0;
  shm::TensorView obs_view_, final_view_, action_view_;
};

}  // namespace shoal::collect
