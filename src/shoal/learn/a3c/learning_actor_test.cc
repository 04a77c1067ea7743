#include "shoal/learn/a3c/learning_actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shoal/learn/a2c/a2c.h"
#include "shoal/learn/learner/optimizer_state.h"
#include "shoal/os/error.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::learn {
namespace {

using os::testing::message_of;
using testing::HasSubstr;
using vector::VectorEnv;

constexpr const char* kCartPole = "shoal/CartPole-v1";

std::unique_ptr<VectorEnv> make(const std::string& id, int num_envs) {
  return VectorEnv::create(id, {.num_envs = num_envs, .backend = vector::Backend::kSerial});
}

/// What a learner shares with its actors, without the learner.
struct Shared {
  Shared(const VectorEnv& envs, const A3cConfig& config, int actors, std::uint64_t seed)
      : config(config),
        agent(envs.single_observation_space(), envs.single_action_space(), config, seed),
        averages(make_optimizer(config, agent.policy().parameters().flat().size())),
        arena(A3cArena::create({.actors = actors,
                                .floats = agent.policy().parameters().flat().size(),
                                .averages = averages->averages().size()})) {
    arena.parameters().write(agent.policy().parameters().flat(), *averages);
  }

  ActorOrder order(const VectorEnv& envs, int actor, std::uint64_t seed) const {
    return {.config = config,
            .actor = actor,
            .first_env = actor * envs.num_envs(),
            .seed = seed,
            .observation_space = envs.single_observation_space().repr(),
            .action_space = envs.single_action_space().repr()};
  }

  /// Until as many steps are made as the run is to have.
  void let_them_learn() {
    A3cBoard& board = arena.board();
    board.give_order(A3cBoard::Order::kGo);
    while (true) {
      const auto seen = board.progress.generation();
      if (static_cast<std::int64_t>(board.steps.load()) >= config.total_steps) break;
      static_cast<void>(board.progress.sleep(seen, os::kNoDeadline));
    }
    board.give_order(A3cBoard::Order::kEnd);
  }

  /// As a learner's state has it.
  LearnerState state() {
    arena.parameters().read(agent.policy().parameters().flat(), *averages);
    LearnerState state;
    agent.save(state);
    OptimizerState::save(*averages, agent.policy().parameters(), state);
    return state;
  }

  A3cConfig config;
  Agent agent;
  std::unique_ptr<Optimizer> averages;
  A3cArena arena;
};

std::jthread run(const std::string& id, int num_envs, const Shared& shared, int actor,
                 std::uint64_t seed) {
  return std::jthread([&shared, id, num_envs, actor, seed] {
    const auto envs = make(id, num_envs);
    LearningActor(*envs, shared.order(*envs, actor, seed), os::Fd(::dup(shared.arena.fd()))).run();
  });
}

// The oracle of the whole path through shared memory is the learner that has none.
void expect_a2c(const std::string& id, OptimizerKind optimizer) {
  A3cConfig config;
  config.optimizer = optimizer;
  config.total_steps = 30 * 4 * config.num_steps;
  config.learning_rate_schedule = Schedule::kLinear;
  config.normalize_reward = true;
  const auto envs = make(id, 4);
  A2cConfig same;
  static_cast<LearnerConfig&>(same) = config;
  const auto a2c =
      make_learner(envs->single_observation_space(), envs->single_action_space(), 4, same, 7);
  a2c->begin(*envs);
  std::vector<collect::Episode> finished;
  IterationStats stats;
  for (int k = 0; k < 30; ++k) {
    stats = a2c->iterate();
    finished.insert(finished.end(), stats.finished.begin(), stats.finished.end());
  }

  Shared shared(*envs, config, 1, 7);
  const auto actor = run(id, 4, shared, 0, 7);
  shared.let_them_learn();
  const LearnerState ours = shared.state();
  const LearnerState theirs = a2c->state();
  EXPECT_EQ(ours.policy, theirs.policy);
  EXPECT_EQ(ours.optimizer, theirs.optimizer);
  EXPECT_EQ(ours.counters.at("optimizer_steps"), 30);
  EXPECT_EQ(shared.arena.board().updates.load(), 30U);
  const ActorTotals totals = shared.arena.line(0).totals();
  EXPECT_EQ(totals.updates, 30);
  EXPECT_EQ(totals.lag, 0) << "nobody else learns";
  EXPECT_DOUBLE_EQ(totals.learning_rate, stats.learning_rate);
  std::vector<collect::Episode> told;
  shared.arena.line(0).take(told);
  EXPECT_EQ(told, finished);
}

TEST(LearningActor, OneAloneLearnsAsA2cBitForBit) {
  for (const auto optimizer :
       {OptimizerKind::kAdam, OptimizerKind::kRmsProp, OptimizerKind::kRmsPropTf})
    expect_a2c(kCartPole, optimizer);
}

TEST(LearningActor, OneAloneLearnsAsA2cBitForBitWhereActionsAreABox) {
  expect_a2c("shoal/Pendulum-v1", OptimizerKind::kAdam);
}

TEST(LearningActor, SeveralAtOnceCountEveryStepAndEpisodeAndLeaveFiniteParameters) {
  A3cConfig config;
  config.total_steps = 12'000;
  config.optimizer = OptimizerKind::kAdam;
  const auto envs = make(kCartPole, 2);
  Shared shared(*envs, config, 3, 1);
  A3cBoard& board = shared.arena.board();
  std::int64_t episodes = 0;
  LearnerState at_the_end;
  {
    std::vector<std::jthread> actors;
    for (int actor = 0; actor < 3; ++actor)
      actors.push_back(run(kCartPole, 2, shared, actor, 100 + static_cast<std::uint64_t>(actor)));
    shared.let_them_learn();
    at_the_end = shared.state();
  }
  const auto updates = static_cast<std::int64_t>(board.updates.load());
  EXPECT_EQ(board.finished_steps(), 12'000);
  EXPECT_EQ(updates * 2 * config.num_steps, 12'000);
  ActorTotals sums;
  for (int actor = 0; actor < 3; ++actor) {
    sums += shared.arena.line(actor).totals();
    std::vector<collect::Episode> told;
    shared.arena.line(actor).take(told);
    for (const auto& episode : told) EXPECT_EQ(episode.env / 2, actor) << "numbers of all";
    episodes += static_cast<std::int64_t>(told.size());
  }
  EXPECT_EQ(sums.updates, updates);
  EXPECT_GT(episodes, 0);
  EXPECT_EQ(at_the_end.counters.at("optimizer_steps"), updates);
  EXPECT_EQ(shared.state(), at_the_end) << "no rollout was under way";
  for (const float p : shared.agent.policy().parameters().flat()) ASSERT_TRUE(std::isfinite(p));
  for (const auto& average : shared.averages->averages())
    for (const float a : average.values) ASSERT_TRUE(std::isfinite(a));
}

TEST(LearningActor, OtherSpacesOrAnotherNetworkAreRefused) {
  const auto envs = make(kCartPole, 2);
  Shared shared(*envs, A3cConfig(), 1, 1);
  const auto fd = [&] { return os::Fd(::dup(shared.arena.fd())); };
  const auto other = make("shoal/Acrobot-v1", 2);
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { LearningActor(*other, shared.order(*envs, 0, 1), fd()); }),
      HasSubstr("the observation space of actor 0's environments"));
  ActorOrder wider = shared.order(*envs, 0, 1);
  wider.config.policy_hidden = {128};
  EXPECT_THAT(message_of<Error>([&] { LearningActor(*envs, wider, fd()); }),
              HasSubstr("this actor's network"));
}

TEST(ActorOrder, ArrivesAsItWasSent) {
  const auto envs = make(kCartPole, 2);
  Shared shared(*envs, A3cConfig(), 1, 1);
  ActorOrder order = shared.order(*envs, 5, (std::uint64_t{1} << 63) - 1);
  order.config.max_restarts = 17;
  order.config.optimizer = OptimizerKind::kAdam;
  const ActorOrder arrived = ActorOrder::decode(order.encode());
  EXPECT_EQ(arrived.config, order.config);
  EXPECT_EQ(arrived.actor, 5);
  EXPECT_EQ(arrived.first_env, 10);
  EXPECT_EQ(arrived.seed, order.seed);
  EXPECT_EQ(arrived.observation_space, order.observation_space);
  EXPECT_EQ(arrived.action_space, order.action_space);
  EXPECT_THROW(ActorOrder::decode(std::vector<std::byte>(3)), InvalidArgument);
}

}  // namespace
}  // namespace shoal::learn
