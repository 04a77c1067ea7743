#include "shoal/learn/run/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using vector::AutoresetMode;

/// Environments whose episodes have lengths given beforehand (the last one repeats), and pay
/// environment index + 1 a step.
class ScriptedEnvs final : public vector::VectorEnv {
 public:
  ScriptedEnvs(std::vector<std::deque<std::int64_t>> lengths, AutoresetMode mode)
      : lengths_(std::move(lengths)),
        mode_(mode),
        n_(lengths_.size()),
        length_(n_),
        at_(n_),
        obs_data_(n_),
        action_data_(n_),
        reward_(n_),
        flags_(4, std::vector<std::uint8_t>(n_)) {
    const auto rows = static_cast<std::int64_t>(n_);
    obs_ = {{reinterpret_cast<std::byte*>(obs_data_.data()), rows, {shm::DType::kF32, {1}}}};
    actions_ = {{reinterpret_cast<std::byte*>(action_data_.data()), rows, {shm::DType::kI64, {}}}};
  }

  int num_envs() const noexcept override { return static_cast<int>(n_); }
  int num_workers() const noexcept override { return 1; }
  const env::Space& single_observation_space() const noexcept override { return obs_space_; }
  const env::Space& single_action_space() const noexcept override { return action_space_; }
  AutoresetMode autoreset_mode() const noexcept override { return mode_; }
  std::span<const shm::TensorView> actions() const noexcept override { return actions_; }

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask) override {
    if (!seeds.empty()) seeds_.assign(seeds.begin(), seeds.end());
    for (std::size_t i = 0; i < n_; ++i)
      if (mask.empty() || mask[i] != 0) begin_episode(i);
  }

  void step_async() override {
    ++steps;
    for (std::size_t i = 0; i < n_; ++i) {
      auto& truncated = flags_[1][i];
      auto& reset = flags_[2][i];
      reset = 0;
      if (mode_ == AutoresetMode::kNextStep && truncated != 0) {
        begin_episode(i);
        reset = 1;
        reward_[i] = 1000;  // nobody may count it
        continue;
      }
      reward_[i] = static_cast<double>(i + 1);
      truncated = ++at_[i] == length_[i] ? 1 : 0;
      if (mode_ == AutoresetMode::kSameStep && truncated != 0) {
        begin_episode(i);
        truncated = 1;
        reset = 1;
      }
      flags_[3][i] = fault_at && *fault_at == std::pair(steps, i) ? 1 : 0;
    }
  }

  vector::Batch wait(std::optional<std::chrono::nanoseconds>) override {
    vector::Batch batch;
    batch.obs = obs_;
    batch.reward = reward_;
    batch.terminated = flags_[0];
    batch.truncated = flags_[1];
    batch.reset = flags_[2];
    batch.fault = flags_[3];
    return batch;
  }
  void close() noexcept override {}

  int steps = 0;
  std::optional<std::pair<int, std::size_t>> fault_at;
  std::vector<std::optional<std::uint64_t>> seeds_;

 private:
  void begin_episode(std::size_t i) {
    at_[i] = 0;
    length_[i] = lengths_[i].front();
    if (lengths_[i].size() > 1) lengths_[i].pop_front();
    flags_[1][i] = 0;
  }

  std::vector<std::deque<std::int64_t>> lengths_;
  AutoresetMode mode_;
  std::size_t n_;
  std::vector<std::int64_t> length_;
  std::vector<std::int64_t> at_;
  std::vector<float> obs_data_;
  std::vector<std::int64_t> action_data_;
  std::vector<double> reward_;
  std::vector<std::vector<std::uint8_t>> flags_;
  std::vector<shm::TensorView> obs_;
  std::vector<shm::TensorView> actions_;
  env::Space obs_space_ = env::Box{{shm::DType::kF32, {1}}, {0}, {1}};
  env::Space action_space_ = env::Discrete{2};
};

const Actor do_nothing = [](auto, auto, auto, std::uint64_t) {};

class EvaluateTest : public testing::TestWithParam<AutoresetMode> {};

TEST_P(EvaluateTest, CountsTheSameNumberOfEpisodesOfEveryEnvironment) {
  ScriptedEnvs envs({{2, 3}, {50, 60}, {1}}, GetParam());
  const auto evaluation = evaluate(envs, do_nothing, {.episodes = 6});
  EXPECT_TRUE(evaluation.complete);
  EXPECT_THAT(evaluation.lengths, ElementsAre(2, 3, 50, 60, 1, 1));
  EXPECT_THAT(evaluation.returns, ElementsAre(2, 3, 100, 120, 3, 3));
}

TEST_P(EvaluateTest, TheFirstEnvironmentsGiveWhatIsLeftOver) {
  ScriptedEnvs envs({{1}, {2}, {3}}, GetParam());
  const auto evaluation = evaluate(envs, do_nothing, {.episodes = 5});
  EXPECT_THAT(evaluation.lengths, ElementsAre(1, 1, 2, 2, 3));
}

TEST_P(EvaluateTest, FewerEpisodesThanEnvironments) {
  ScriptedEnvs envs({{4}, {5}, {6}}, GetParam());
  const auto evaluation = evaluate(envs, do_nothing, {.episodes = 1});
  EXPECT_THAT(evaluation.lengths, ElementsAre(4));
  EXPECT_EQ(envs.steps, 4);
}

TEST_P(EvaluateTest, AnEpisodeWithoutEndIsCut) {
  ScriptedEnvs envs({{1'000'000'000}, {3}}, GetParam());
  const auto evaluation = evaluate(envs, do_nothing, {.episodes = 4, .max_episode_steps = 10});
  EXPECT_THAT(evaluation.lengths, ElementsAre(10, 10, 3, 3));
}

INSTANTIATE_TEST_SUITE_P(Modes, EvaluateTest,
                         testing::Values(AutoresetMode::kNextStep, AutoresetMode::kSameStep),
                         [](const auto& info) { return std::string(vector::name(info.param)); });

TEST(Evaluate, SeedsEveryEnvironmentOnce) {
  ScriptedEnvs envs({{4}, {5}}, AutoresetMode::kNextStep);
  evaluate(envs, do_nothing, {.episodes = 6, .seed = 40});
  EXPECT_THAT(envs.seeds_, ElementsAre(40, 41));
}

TEST(Evaluate, AnEpisodeCutByAFaultDoesNotCount) {
  ScriptedEnvs envs({{4}}, AutoresetMode::kNextStep);
  envs.fault_at = {2, 0};
  const auto evaluation = evaluate(envs, do_nothing, {.episodes = 1});
  EXPECT_THAT(evaluation.lengths, ElementsAre(2));  // steps 3 and 4 of what the new worker began
}

TEST(Evaluate, ActsWithStepNumbersFromZero) {
  ScriptedEnvs envs({{3}}, AutoresetMode::kNextStep);
  std::vector<std::uint64_t> steps;
  evaluate(envs, [&](auto, auto, auto, std::uint64_t step) { steps.push_back(step); },
           {.episodes = 1});
  EXPECT_THAT(steps, ElementsAre(0, 1, 2));
}

TEST(Evaluate, TellsWhereEpisodesBegin) {
  const auto beginnings = [](AutoresetMode mode) {
    ScriptedEnvs envs({{2, 3, 100}}, mode);
    std::vector<int> first;
    evaluate(envs, [&](auto, auto is_first, auto, auto) { first.push_back(is_first[0]); },
             {.episodes = 3, .max_episode_steps = 4});
    return first;
  };
  // With an autoreset of its own after each episode, but for the one that is cut.
  EXPECT_THAT(beginnings(AutoresetMode::kNextStep), ElementsAre(1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0));
  EXPECT_THAT(beginnings(AutoresetMode::kSameStep), ElementsAre(1, 0, 1, 0, 0, 1, 0, 0, 0));
}

TEST(Evaluate, CanBeCancelled) {
  ScriptedEnvs envs({{1'000'000'000}}, AutoresetMode::kNextStep);
  const auto evaluation =
      evaluate(envs, do_nothing, {.episodes = 1, .cancelled = [&] { return envs.steps == 5; }});
  EXPECT_FALSE(evaluation.complete);
  EXPECT_EQ(envs.steps, 5);
}

TEST(Evaluate, RefusesWhatItCannotDo) {
  ScriptedEnvs envs({{1}}, AutoresetMode::kNextStep);
  EXPECT_THROW(evaluate(envs, do_nothing, {.episodes = 0}), InvalidArgument);
  ScriptedEnvs disabled({{1}}, AutoresetMode::kDisabled);
  EXPECT_THROW(evaluate(disabled, do_nothing, {}), InvalidArgument);
}

TEST(Evaluate, MeanAndDeviation) {
  Evaluation evaluation;
  evaluation.returns = {1, 2, 3, 6};
  evaluation.lengths = {1, 2};
  EXPECT_THAT(evaluation.mean_return(), DoubleEq(3));
  EXPECT_THAT(evaluation.std_return(), DoubleEq(std::sqrt(14.0 / 4)));
  EXPECT_THAT(evaluation.mean_length(), DoubleEq(1.5));
}

}  // namespace
}  // namespace shoal::learn
