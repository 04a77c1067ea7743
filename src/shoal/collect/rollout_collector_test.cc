#include "shoal/collect/rollout_collector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shoal/collect/gae.h"
#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

using vector::AutoresetMode;
using Script = std::vector<std::vector<ScriptedEpisode>>;

// Values an observation at a tenth of itself; its action is the step modulo 3, its log-probability
// -step.
class TestPolicy final : public Policy {
 public:
  const shm::TensorSpec& action_spec() const noexcept override { return spec_; }
  void act(std::span<const shm::TensorView> obs, std::uint64_t step, const shm::TensorView& actions,
           std::span<float> logp, std::span<float> value) override {
    for (auto& a : actions.as<std::int32_t>()) a = static_cast<std::int32_t>(step % 3);
    for (auto& l : logp) l = -static_cast<float>(step);
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = obs[0].as<float>()[i] / 10;
    told.push_back("act");
  }
  void values(std::span<const shm::TensorView> obs, std::span<const int> envs,
              std::span<float> value) override {
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = obs[0].as<float>()[i] / 10;
    told.push_back(fmt::format("values of {}", fmt::join(envs, " ")));
  }
  void begin_rollout() override { told.push_back("rollout"); }
  void forget(std::span<const std::uint8_t> envs) override {
    if (std::ranges::count(envs, 0) < static_cast<std::ptrdiff_t>(envs.size()))
      told.push_back(fmt::format("forget {}", fmt::join(envs, "")));
  }

  std::vector<std::string> told;

 private:
  shm::TensorSpec spec_{shm::DType::kI32, {1}};
};

struct Fixture {
  Fixture(Script script, AutoresetMode mode, int steps)
      : envs(std::move(script), mode),
        encoder(envs.single_observation_space()),
        decoder(envs.single_action_space()),
        rewards(envs.num_envs(), {}),
        episodes(envs.num_envs()),
        collector(envs, {policy, encoder, decoder, rewards, episodes}, steps) {}

  Rollout& collect(std::uint64_t first_step = 0) {
    if (first_step == 0)
      collector.reset(std::vector<std::optional<std::uint64_t>>(envs.seeds().size()));
    return collector.collect(first_step);
  }

  ScriptedVectorEnv envs;
  TestPolicy policy;
  ObservationEncoder encoder;
  ActionDecoder decoder;
  RewardScaler rewards;
  EpisodeStats episodes;
  RolloutCollector collector;
};

std::vector<float> observations(const Rollout& rollout, int env) {
  std::vector<float> out;
  for (int t = 0; t <= rollout.steps(); ++t)
    out.push_back(rollout.obs(t)[0].as<float>()[static_cast<std::size_t>(env)]);
  return out;
}

template <class T>
std::vector<T> column(std::span<T> all, int envs, int env) {
  std::vector<T> out;
  for (std::size_t k = static_cast<std::size_t>(env); k < all.size();
       k += static_cast<std::size_t>(envs)) {
    out.push_back(all[k]);
  }
  return out;
}

using Floats = std::vector<float>;
using Flags = std::vector<std::uint8_t>;

TEST(RolloutCollector, NextStepAutoresetRowIsMaskedAndTruncationIsBootstrapped) {
  Fixture f({{{2, false}}, {}}, AutoresetMode::kNextStep, 5);
  Rollout& r = f.collect();
  // Episode 0 of environment 0 is cut after two steps; the third step resets.
  EXPECT_EQ(observations(r, 0), (Floats{0, 1, 2, 100, 101, 102}));
  EXPECT_EQ(column(r.reward(), 2, 0), (Floats{1, 2, 0, 1, 2}));
  EXPECT_EQ(column(r.truncated(), 2, 0), (Flags{0, 1, 0, 0, 0}));
  EXPECT_EQ(column(r.valid(), 2, 0), (Flags{1, 1, 0, 1, 1}));
  // next_value(1) is the value of the observation that the episode was cut at: obs(2) = 2.
  EXPECT_EQ(column(r.next_value(), 2, 0), (Floats{0.1F, 0.2F, 10, 10.1F, 10.2F}));
  EXPECT_EQ(column(r.valid(), 2, 1), (Flags{1, 1, 1, 1, 1}));
  EXPECT_EQ(r.valid_rows(), (std::vector<std::int32_t>{0, 1, 2, 3, 5, 6, 7, 8, 9}));

  Floats advantage(r.size()), returns(r.size());
  gae({.steps = 5,
       .envs = 2,
       .reward = r.reward(),
       .value = r.value(),
       .next_value = r.next_value(),
       .terminated = r.terminated(),
       .truncated = r.truncated(),
       .valid = r.valid(),
       .gamma = 0.5F,
       .lambda = 0.5F},
      advantage, returns);
  EXPECT_FLOAT_EQ(advantage[2], 2 + 0.5F * 0.2F - 0.1F);  // (1, 0): bootstrapped
  EXPECT_FLOAT_EQ(advantage[0], 1 + 0.5F * 0.1F - 0.0F + 0.25F * advantage[2]);  // (0, 0)
}

TEST(RolloutCollector, SameStepAutoresetTakesTheValueOfTheFinalObservation) {
  Fixture f({{{2, false}, {1, true}}, {{3, false}}}, AutoresetMode::kSameStep, 4);
  Rollout& r = f.collect();
  EXPECT_EQ(observations(r, 0), (Floats{0, 1, 100, 200, 201}));
  EXPECT_EQ(column(r.valid(), 2, 0), (Flags{1, 1, 1, 1}));
  EXPECT_EQ(column(r.truncated(), 2, 0), (Flags{0, 1, 0, 0}));
  EXPECT_EQ(column(r.terminated(), 2, 0), (Flags{0, 0, 1, 0}));
  EXPECT_EQ(column(r.next_value(), 2, 0), (Floats{0.1F, 0.2F, 0, 20.1F}));
  EXPECT_EQ(column(r.next_value(), 2, 1), (Floats{100.1F, 100.2F, 100.3F, 110.1F}));
  EXPECT_EQ(f.episodes.take_finished(), (std::vector<Episode>{{0, 3, 2}, {0, 1, 1}, {1, 6, 3}}));
}

TEST(RolloutCollector, RolloutsFollowOneAnother) {
  Fixture f({{{3, true}}}, AutoresetMode::kNextStep, 2);
  Rollout& r = f.collect();
  EXPECT_EQ(observations(r, 0), (Floats{0, 1, 2}));
  f.collect(2);
  EXPECT_EQ(observations(r, 0), (Floats{2, 3, 100}));
  EXPECT_EQ(column(r.valid(), 1, 0), (Flags{1, 0}));
  EXPECT_EQ(column(r.logp(), 1, 0), (Floats{-2, -3}));
  EXPECT_EQ(f.envs.taken()[0], 5 + 3 % 3) << "the action space starts at 5";
  EXPECT_EQ(f.episodes.count(), 1);
}

TEST(RolloutCollector, EndsAfterAQuarterAtTheEarliestOnceThereIsEnough) {
  Fixture f({{}}, AutoresetMode::kNextStep, 8);
  f.collector.reset(std::vector<std::optional<std::uint64_t>>(1));
  int asked = 0;
  Rollout& r = f.collector.collect(0, [&] { return ++asked == 2; });
  EXPECT_EQ(f.collector.taken(), 3) << "asked after two steps, and after three";
  EXPECT_EQ(column(r.valid(), 1, 0), (Flags{1, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_FLOAT_EQ(r.next_value()[2], 0.3F);
  f.collect(8);
  EXPECT_EQ(f.collector.taken(), 8);
  EXPECT_EQ(observations(r, 0), (Floats{3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(RolloutCollector, ADeadWorkersRowsAreNotTransitions) {
  for (const auto mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    Fixture f({{}, {}}, mode, 4);
    f.envs.die(1, 0);
    Rollout& r = f.collect();
    EXPECT_EQ(column(r.valid(), 2, 0), (Flags{1, 0, 0, 1}));
    EXPECT_EQ(column(r.valid(), 2, 1), (Flags{1, 1, 1, 1}));
    EXPECT_EQ(column(r.reward(), 2, 0), (Floats{1, 0, 0, 1}));
    EXPECT_FLOAT_EQ(column(r.next_value(), 2, 0)[0], 0.1F);
    EXPECT_EQ(f.episodes.count(), 0);
  }
}

TEST(RolloutCollector, ResumesWhereAnotherStopped) {
  const Script script{{{3, true}, {4, false}}, {{2, false}}};
  Fixture whole(script, AutoresetMode::kNextStep, 3);
  whole.collect();
  const Rollout& expected = whole.collect(3);

  Fixture resumed(script, AutoresetMode::kNextStep, 3);
  vector::Batch batch = resumed.envs.reset(std::vector<std::optional<std::uint64_t>>(2));
  for (int k = 0; k < 3; ++k) batch = resumed.envs.step();
  resumed.collector.resume(batch);
  const Rollout& actual = resumed.collector.collect(3);
  for (int env = 0; env < 2; ++env)
    EXPECT_EQ(observations(actual, env), observations(expected, env));
}

TEST(RolloutCollector, SeedsReachTheirEnvironments) {
  Fixture f({{}, {}}, AutoresetMode::kNextStep, 1);
  const std::vector<std::optional<std::uint64_t>> seeds{7, 9};
  f.collector.reset(seeds);
  EXPECT_EQ(std::vector(f.envs.seeds().begin(), f.envs.seeds().end()), seeds);
}

TEST(RolloutCollector, CollectingBeforeAResetThrows) {
  Fixture f({{}}, AutoresetMode::kNextStep, 1);
  EXPECT_THROW(f.collector.collect(0), InvalidState);
}

TEST(RolloutCollector, EnvironmentsThatAreNotResetAreRefused) {
  EXPECT_THROW(Fixture({{}}, AutoresetMode::kDisabled, 1), InvalidArgument);
}

TEST(RolloutCollector, ExchangedRolloutsGoOnWhereTheLastOneEnded) {
  Fixture whole({{{4, true}, {9, false}}, {{20, true}}}, AutoresetMode::kNextStep, 3);
  Fixture exchanging({{{4, true}, {9, false}}, {{20, true}}}, AutoresetMode::kNextStep, 3);
  Rollout other(3, 2, exchanging.encoder.specs(), exchanging.policy.action_spec());
  for (std::uint64_t k = 0; k < 5; ++k) {
    Rollout& wanted = whole.collect(3 * k);
    exchanging.collect(3 * k);
    exchanging.collector.exchange(other);
    for (int env = 0; env < 2; ++env)
      EXPECT_EQ(observations(other, env), observations(wanted, env));
    EXPECT_TRUE(std::ranges::equal(other.reward(), wanted.reward()));
    EXPECT_TRUE(std::ranges::equal(other.valid(), wanted.valid()));
    EXPECT_TRUE(std::ranges::equal(other.next_value(), wanted.next_value()));
  }
}

TEST(RolloutCollector, APolicyThatRemembersIsToldWhereEpisodesBegin) {
  using testing::ElementsAre;
  const Script script{{{2, true}, {9, true}}, {{3, false}, {9, true}}};
  Fixture next_step(script, AutoresetMode::kNextStep, 4);
  next_step.collect();
  // An environment is reset, and forgotten, in the step after its last one.
  EXPECT_THAT(next_step.policy.told, ElementsAre("forget 11", "rollout", "act", "act", "act",
                                                 "forget 10", "act", "forget 01", "values of 0 1"));
  Fixture same_step(script, AutoresetMode::kSameStep, 3);
  same_step.collect();
  // The end of the truncated episode is valued before it is forgotten.
  EXPECT_THAT(same_step.policy.told,
              ElementsAre("forget 11", "rollout", "act", "act", "forget 10", "act", "values of 1",
                          "forget 01", "values of 0 1"));
}

}  // namespace
}  // namespace shoal::collect
