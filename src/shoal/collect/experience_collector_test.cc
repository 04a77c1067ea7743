#include "shoal/collect/experience_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

using testing::Each;
using testing::ElementsAre;
using vector::AutoresetMode;

constexpr float kLogProb = -0.5F;

/// Takes action 5 + t % 3, and remembers what it was shown.
class CountingActor final : public Actor {
 public:
  void act(const Decision& decision) override {
    if (fail_at == decision.t) throw std::runtime_error("the policy failed");
    steps.push_back(decision.step);
    seen.push_back(decision.obs[0].as<float>()[0]);
    for (auto& action : decision.action.as<std::int64_t>()) action = 5 + decision.t % 3;
    std::ranges::fill(decision.log_prob, kLogProb);
    std::ranges::fill(decision.value, static_cast<float>(decision.t));
  }

  int fail_at = -1;
  std::vector<std::uint64_t> steps;
  std::vector<float> seen;
};

ScriptedVectorEnv scripted(AutoresetMode mode) {
  return ScriptedVectorEnv({{{2, true}, {3, false}}, {}}, mode);
}

template <class T>
std::vector<T> column(const Experience& experience, const shm::TensorView& view, int env) {
  std::vector<T> values;
  for (int t = 0; t < experience.steps(); ++t)
    values.push_back(experience.at<T>(view, t)[static_cast<std::size_t>(env)]);
  return values;
}

Experience collected(ExperienceCollector& collector, Actor& actor, int steps,
                     bool everything = true) {
  ExperienceSpec spec = collector.spec();
  spec.next_obs = spec.log_prob = spec.value = everything;
  Experience experience = Experience::allocate(spec, steps);
  collector.collect(actor, experience, {.count = steps, .policy_version = 4});
  return experience;
}

constexpr std::optional<std::uint64_t> kSeeds[] = {1, 2};

TEST(ExperienceCollector, WithSameStepAutoresetEveryRowIsATransition) {
  auto envs = scripted(AutoresetMode::kSameStep);
  ExperienceCollector collector(envs);
  collector.reset(kSeeds);
  CountingActor actor;
  const Experience e = collected(collector, actor, 6);
  EXPECT_THAT(column<float>(e, e.obs()[0], 0), ElementsAre(0, 1, 100, 101, 102, 200));
  EXPECT_THAT(column<float>(e, e.next_obs()[0], 0), ElementsAre(1, 2, 101, 102, 103, 201));
  EXPECT_THAT(column<float>(e, e.reward(), 0), ElementsAre(1, 2, 1, 2, 3, 1));
  EXPECT_THAT(column<std::uint8_t>(e, e.terminated(), 0), ElementsAre(0, 1, 0, 0, 0, 0));
  EXPECT_THAT(column<std::uint8_t>(e, e.truncated(), 0), ElementsAre(0, 0, 0, 0, 1, 0));
  EXPECT_THAT(column<std::uint8_t>(e, e.is_first(), 0), ElementsAre(1, 0, 1, 0, 0, 1));
  EXPECT_THAT(column<std::uint8_t>(e, e.valid(), 0), Each(1));
  EXPECT_THAT(column<std::int64_t>(e, e.action(), 0), ElementsAre(5, 6, 7, 5, 6, 7));
  EXPECT_THAT(column<std::int64_t>(e, e.episode_id(), 0), ElementsAre(0, 0, 2, 2, 2, 4));
  EXPECT_THAT(column<std::int64_t>(e, e.episode_id(), 1), Each(1));
  EXPECT_THAT(column<std::int64_t>(e, e.env_id(), 1), Each(1));
  EXPECT_THAT(column<std::int64_t>(e, e.policy_version(), 0), Each(4));
  EXPECT_THAT(column<float>(e, e.log_prob(), 0), Each(kLogProb));
  EXPECT_THAT(column<float>(e, e.value(), 0), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(column<float>(e, e.obs()[0], 1), ElementsAre(1000, 1001, 1002, 1003, 1004, 1005));
  EXPECT_EQ(collector.resets() + collector.faults(), 0);
  EXPECT_EQ(collector.episodes().count(), 2);
}

TEST(ExperienceCollector, WithNextStepAutoresetTheRowThatResetsIsNoTransition) {
  auto envs = scripted(AutoresetMode::kNextStep);
  ExperienceCollector collector(envs);
  collector.reset(kSeeds);
  CountingActor actor;
  const Experience e = collected(collector, actor, 5);
  EXPECT_THAT(column<float>(e, e.obs()[0], 0), ElementsAre(0, 1, 2, 100, 101));
  EXPECT_THAT(column<float>(e, e.next_obs()[0], 0), ElementsAre(1, 2, 100, 101, 102));
  EXPECT_THAT(column<std::uint8_t>(e, e.valid(), 0), ElementsAre(1, 1, 0, 1, 1));
  EXPECT_THAT(column<std::uint8_t>(e, e.is_first(), 0), ElementsAre(1, 0, 0, 1, 0));
  EXPECT_THAT(column<std::int64_t>(e, e.episode_id(), 0), ElementsAre(0, 0, 0, 2, 2));
  EXPECT_EQ(collector.resets(), 1);
}

TEST(ExperienceCollector, BatchesContinueEachOther) {
  auto envs = scripted(AutoresetMode::kSameStep);
  ExperienceCollector collector(envs);
  collector.reset(kSeeds);
  CountingActor actor;
  const Experience whole = Experience::allocate(collector.spec(), 4);
  collector.collect(actor, whole, {.count = 1, .policy_version = 1});
  collector.collect(actor, whole, {.first = 1, .count = 3, .policy_version = 2});
  const Experience next = collected(collector, actor, 2, false);
  EXPECT_THAT(column<float>(whole, whole.obs()[0], 0), ElementsAre(0, 1, 100, 101));
  EXPECT_THAT(column<std::int64_t>(whole, whole.policy_version(), 0), ElementsAre(1, 2, 2, 2));
  EXPECT_THAT(column<float>(next, next.obs()[0], 0), ElementsAre(102, 200));
  EXPECT_THAT(column<std::uint8_t>(next, next.is_first(), 0), ElementsAre(0, 1));
  EXPECT_THAT(actor.steps, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(actor.seen, ElementsAre(0, 1, 100, 101, 102, 200));
  EXPECT_TRUE(next.next_obs().empty());
  EXPECT_TRUE(next.at<float>(next.log_prob(), 0).empty());
}

TEST(ExperienceCollector, TheRowsOfAFaultAreCountedAndNotValid) {
  auto envs = scripted(AutoresetMode::kSameStep);
  envs.die(1, 1);
  ExperienceCollector collector(envs);
  collector.reset(kSeeds);
  CountingActor actor;
  const Experience e = collected(collector, actor, 4);
  EXPECT_THAT(column<std::uint8_t>(e, e.valid(), 1), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(column<std::uint8_t>(e, e.truncated(), 1), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(column<float>(e, e.reward(), 1), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(column<std::int64_t>(e, e.episode_id(), 1), ElementsAre(1, 1, 1, 3));
  EXPECT_THAT(column<std::uint8_t>(e, e.valid(), 0), Each(1));
  EXPECT_EQ(collector.faults(), 1);
  EXPECT_EQ(collector.resets(), 1);
}

TEST(ExperienceCollector, AfterAFailureItAsksForAReset) {
  auto envs = scripted(AutoresetMode::kSameStep);
  ExperienceCollector collector(envs);
  CountingActor actor;
  EXPECT_THROW(collected(collector, actor, 2), InvalidState);
  collector.reset(kSeeds);
  actor.fail_at = 1;
  EXPECT_THROW(collected(collector, actor, 2), std::runtime_error);
  EXPECT_THROW(collected(collector, actor, 2), InvalidState);
  EXPECT_THROW(collector.state(), InvalidState);
  actor.fail_at = -1;
  collector.reset(kSeeds);
  const Experience e = collected(collector, actor, 2);
  EXPECT_THAT(column<float>(e, e.obs()[0], 0), ElementsAre(0, 1));
}

TEST(ExperienceCollector, ARestoredCollectorGoesOnWhereTheOtherStood) {
  auto envs = scripted(AutoresetMode::kSameStep);
  CountingActor actor;
  ExperienceCollector first(envs);
  first.reset(kSeeds);
  collected(first, actor, 3);
  const ExperienceCollectorState state = first.state();
  ExperienceCollector second(envs);  // of the same environments, which stand where they stood
  second.restore(state);
  actor.steps.clear();
  const Experience e = collected(second, actor, 3);
  EXPECT_THAT(column<float>(e, e.obs()[0], 0), ElementsAre(101, 102, 200));
  EXPECT_THAT(column<std::uint8_t>(e, e.is_first(), 0), ElementsAre(0, 0, 1));
  EXPECT_THAT(column<std::int64_t>(e, e.episode_id(), 0), ElementsAre(2, 2, 4));
  EXPECT_THAT(actor.steps, ElementsAre(3, 4, 5));
  EXPECT_EQ(second.episodes().count(), 2);
  EXPECT_EQ(second.episodes().mean_return(), (3 + 6) / 2.0);

  ScriptedVectorEnv other({{}}, AutoresetMode::kSameStep);
  ExperienceCollector smaller(other);
  EXPECT_THROW(smaller.restore(state), InvalidArgument);
}

TEST(ExperienceCollector, ActionsOfABoxAreClippedForTheEnvironmentAlone) {
  /// Draws far outside of every bound.
  class BoldActor final : public Actor {
    void act(const Decision& decision) override {
      for (auto& action : decision.action.as<float>()) action = decision.t == 0 ? 1e6F : -1e6F;
    }
  };
  const auto envs =
      vector::VectorEnv::create("shoal/Pendulum-v1", {.num_envs = 2,
                                                      .backend = vector::Backend::kSerial,
                                                      .autoreset_mode = AutoresetMode::kSameStep});
  ExperienceCollector collector(*envs);
  collector.reset(kSeeds);
  BoldActor actor;
  for (const auto& [t, sent, kept] : {std::tuple{0, 2.0F, 1e6F}, std::tuple{1, -2.0F, -1e6F}}) {
    const Experience e = Experience::allocate(collector.spec(), 2);
    collector.collect(actor, e, {.first = t, .count = 1});
    EXPECT_THAT(envs->actions()[0].as<float>(), Each(sent));
    EXPECT_THAT(e.at(e.action(), t).as<float>(), Each(kept));
  }
}

TEST(ExperienceCollector, EnvironmentsThatAreNotResetAreRefused) {
  auto envs = scripted(AutoresetMode::kDisabled);
  EXPECT_THROW(ExperienceCollector{envs}, InvalidArgument);
}

TEST(Experience, ItsArraysDoNotOverlapAndLiveInOneBlock) {
  const ExperienceSpec spec{.envs = 3,
                            .obs = {{shm::DType::kU8, {5}}, {shm::DType::kF64, {}}},
                            .action = {shm::DType::kF32, {2}},
                            .next_obs = true,
                            .log_prob = true,
                            .value = true};
  const Experience e = Experience::allocate(spec, 7);
  std::vector<shm::TensorView> all = {
      e.action(),   e.reward(), e.terminated(), e.truncated(), e.valid(),         e.is_first(),
      e.log_prob(), e.value(),  e.episode_id(), e.env_id(),    e.policy_version()};
  all.insert(all.end(), e.obs().begin(), e.obs().end());
  all.insert(all.end(), e.next_obs().begin(), e.next_obs().end());
  for (std::size_t i = 0; i < all.size(); ++i)
    std::memset(all[i].data, static_cast<int>(i), all[i].bytes());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].rows, 7);
    const std::span bytes(all[i].data, all[i].bytes());
    EXPECT_THAT(bytes, Each(static_cast<std::byte>(i)));
    EXPECT_GE(bytes.data(), e.block().data());
    EXPECT_LE(bytes.data() + bytes.size(), e.block().data() + e.block().size());
  }
  EXPECT_EQ(e.action().bytes(), 7U * 3 * 2 * 4);
  EXPECT_THROW(Experience::allocate(spec, 0), InvalidArgument);
}

/// Takes its actions from the columns that it is asked for: 5 and more.
class ColumnActor final : public Actor {
 public:
  void act(const Decision& decision) override {
    const auto obs = decision.obs[0].as<float>();
    seen.emplace_back(obs.begin(), obs.end());
    firsts.emplace_back(decision.is_first.begin(), decision.is_first.end());
    std::int64_t column = 0;
    for (auto& action : decision.action.as<std::int64_t>()) action = 5 + column++;
    for (std::size_t i = 0; i < decision.value.size(); ++i)
      decision.value[i] = static_cast<float>(i);
  }
  std::vector<std::vector<float>> seen;
  std::vector<std::vector<std::uint8_t>> firsts;
};

TEST(ExperienceCollector, TwoOfThemFillTheColumnsOfOneExperienceAsOneWouldAlone) {
  ScriptedVectorEnv first({{{2, true}}}, AutoresetMode::kSameStep);
  ScriptedVectorEnv second({{{3, false}}, {}}, AutoresetMode::kSameStep);
  ExperienceCollector left(first, {}, 0, 3);
  ExperienceCollector right(second, {}, 1, 3);
  left.reset(std::span(kSeeds).first(1));
  right.reset(kSeeds);
  ExperienceSpec spec = left.spec();
  spec.envs = 3;
  spec.next_obs = spec.value = true;
  const Experience whole = Experience::allocate(spec, 4);
  const Experience seen_by_other = Experience::attach(spec, 4, whole.block());
  ColumnActor actor;
  EXPECT_EQ(left.collect(actor, whole, {.count = 4}), 4);
  EXPECT_EQ(right.collect(actor, seen_by_other, {.count = 4, .policy_version = 2, .column = 1}), 4);
  EXPECT_THAT(column<float>(whole, whole.obs()[0], 0), ElementsAre(0, 1, 100, 101));
  EXPECT_THAT(column<float>(whole, whole.obs()[0], 1), ElementsAre(0, 1, 2, 100));
  EXPECT_THAT(column<float>(whole, whole.obs()[0], 2), ElementsAre(1000, 1001, 1002, 1003));
  EXPECT_THAT(column<float>(whole, whole.next_obs()[0], 1), ElementsAre(1, 2, 3, 101));
  EXPECT_THAT(column<std::int64_t>(whole, whole.env_id(), 2), Each(2));
  EXPECT_THAT(column<std::int64_t>(whole, whole.episode_id(), 0), ElementsAre(0, 0, 3, 3));
  EXPECT_THAT(column<std::int64_t>(whole, whole.episode_id(), 1), ElementsAre(1, 1, 1, 4));
  EXPECT_THAT(column<std::int64_t>(whole, whole.policy_version(), 0), Each(0));
  EXPECT_THAT(column<std::int64_t>(whole, whole.policy_version(), 1), Each(2));
  EXPECT_THAT(column<std::int64_t>(whole, whole.action(), 2), Each(6));
  EXPECT_THROW(right.collect(actor, whole, {.count = 4, .column = 2}), InvalidArgument);
  EXPECT_THROW(Experience::attach(spec, 400, whole.block()), InvalidArgument);
}

TEST(ExperienceCollector, OnAStageTheActorIsAskedForAllColumnsAndTheOwnOnesCount) {
  auto envs = scripted(AutoresetMode::kSameStep);
  ExperienceCollector collector(envs);
  collector.reset(kSeeds);
  ExperienceSpec spec = collector.spec();
  spec.log_prob = spec.value = true;
  const Experience out = Experience::allocate(spec, 3);
  spec.envs = 5;
  const Experience stage = Experience::allocate(spec, 1);
  ColumnActor actor;
  EXPECT_EQ(collector.collect(actor, out, {.count = 3, .stage = &stage, .stage_column = 2}), 3);
  EXPECT_THAT(actor.seen[0], ElementsAre(0, 0, 0, 1000, 0));
  EXPECT_THAT(actor.seen[1], ElementsAre(1, 1, 1, 1001, 1));
  EXPECT_THAT(actor.firsts[2], ElementsAre(1, 1, 1, 0, 1));
  EXPECT_THAT(column<std::int64_t>(out, out.action(), 0), Each(7));
  EXPECT_THAT(column<std::int64_t>(out, out.action(), 1), Each(8));
  EXPECT_THAT(column<float>(out, out.value(), 1), Each(3));
  EXPECT_THAT(column<float>(out, out.obs()[0], 1), ElementsAre(1000, 1001, 1002));
}

/// Stops the order that is under way in its second decision.
class StoppingActor final : public Actor {
 public:
  explicit StoppingActor(ProgressLine line) : line_(line) {}
  void act(const Decision& decision) override {
    if (decision.t == 1) line_.stop(3);
    for (auto& action : decision.action.as<std::int64_t>()) action = 5;
  }

 private:
  ProgressLine line_;
};

TEST(ExperienceCollector, AnOrderThatIsStoppedEndsInRowsThatAreNotValid) {
  auto envs = scripted(AutoresetMode::kSameStep);
  ExperienceCollector collector(envs);
  collector.reset(kSeeds);
  const Experience out = Experience::allocate(collector.spec(), 5);
  std::memset(out.block().data(), 0x55, out.block().size());
  const ProgressBoard board = ProgressBoard::create(1);
  ProgressLine line = board.line(0);
  StoppingActor actor(line);
  const CollectOrder order{.count = 5, .policy_version = 7, .progress = &line, .number = 3};
  EXPECT_EQ(collector.collect(actor, out, order), 2);
  EXPECT_EQ(line.rows(), 4U);
  EXPECT_THAT(column<std::uint8_t>(out, out.valid(), 0), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(column<float>(out, out.obs()[0], 1), ElementsAre(1000, 1001, 0, 0, 0));
  EXPECT_THAT(column<float>(out, out.reward(), 1), ElementsAre(1, 2, 0, 0, 0));
  EXPECT_THAT(column<std::int64_t>(out, out.episode_id(), 0), ElementsAre(0, 0, 2, 2, 2));
  EXPECT_THAT(column<std::int64_t>(out, out.policy_version(), 1), Each(7));
  // An order that is stopped already takes one step; the next one is not stopped.
  EXPECT_EQ(collector.collect(actor, out, {.count = 1, .progress = &line, .number = 3}), 1);
  EXPECT_EQ(collector.collect(actor, out, {.first = 2, .count = 3, .progress = &line, .number = 4}),
            3);
  EXPECT_THAT(column<float>(out, out.obs()[0], 1), ElementsAre(1002, 1001, 1003, 1004, 1005));
}

TEST(ExperienceCollector, CohortsInTurnGiveWhatEachGivesAlone) {
  ScriptedVectorEnv first({{{2, true}}}, AutoresetMode::kSameStep);
  ScriptedVectorEnv second({{{3, false}}, {}}, AutoresetMode::kSameStep);
  ExperienceCollector left(first, {}, 0, 3);
  ExperienceCollector right(second, {}, 1, 3);
  left.reset(std::span(kSeeds).first(1));
  right.reset(kSeeds);
  ExperienceSpec spec = left.spec();
  spec.envs = 3;
  const Experience whole = Experience::allocate(spec, 4);
  CountingActor one, two;
  const ExperienceCollector::Cohort cohorts[] = {{&left, &one, 0}, {&right, &two, 1}};
  ExperienceCollector::collect_in_turn(cohorts, whole, {.count = 1});
  ExperienceCollector::collect_in_turn(cohorts, whole,
                                       {.first = 1, .count = 3, .policy_version = 2});
  EXPECT_THAT(column<float>(whole, whole.obs()[0], 0), ElementsAre(0, 1, 100, 101));
  EXPECT_THAT(column<float>(whole, whole.obs()[0], 1), ElementsAre(0, 1, 2, 100));
  EXPECT_THAT(column<float>(whole, whole.obs()[0], 2), ElementsAre(1000, 1001, 1002, 1003));
  EXPECT_THAT(column<std::uint8_t>(whole, whole.terminated(), 0), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(column<std::int64_t>(whole, whole.policy_version(), 2), ElementsAre(0, 2, 2, 2));
  EXPECT_THAT(one.steps, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(two.steps, ElementsAre(0, 1, 2, 3));
}

TEST(ExperienceCollector, WhereACohortFailsAllCanBeReset) {
  ScriptedVectorEnv first({{}}, AutoresetMode::kSameStep);
  ScriptedVectorEnv second({{}}, AutoresetMode::kSameStep);
  ExperienceCollector left(first, {}, 0, 2);
  ExperienceCollector right(second, {}, 1, 2);
  left.reset(std::span(kSeeds).first(1));
  right.reset(std::span(kSeeds).first(1));
  ExperienceSpec spec = left.spec();
  spec.envs = 2;
  const Experience whole = Experience::allocate(spec, 3);
  CountingActor one, two;
  two.fail_at = 1;
  const ExperienceCollector::Cohort cohorts[] = {{&left, &one, 0}, {&right, &two, 1}};
  EXPECT_THROW(ExperienceCollector::collect_in_turn(cohorts, whole, {.count = 3}),
               std::runtime_error);
  EXPECT_THROW(ExperienceCollector::collect_in_turn(cohorts, whole, {.count = 3}), InvalidState);
  left.reset({});
  right.reset({});
  two.fail_at = -1;
  ExperienceCollector::collect_in_turn(cohorts, whole, {.count = 3});
  EXPECT_THAT(column<std::uint8_t>(whole, whole.valid(), 0), Each(1));
}

}  // namespace
}  // namespace shoal::collect
