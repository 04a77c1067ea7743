#include "shoal/learn/asynchronous/off_policy_advantages.h"

#include <gtest/gtest.h>

#include <vector>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/learn/asynchronous/rollout_actor.h"
#include "shoal/learn/impala/impala_config.h"
#include "shoal/learn/learner/agent.h"

namespace shoal::learn {
namespace {

using collect::ScriptedVectorEnv;
using vector::AutoresetMode;

constexpr int kSteps = 5;

/// A rollout by one policy, as another one values it. Environment 0 is truncated at its second step,
/// environment 1 at the rollout's last.
struct ValuedByAnother {
  explicit ValuedByAnother(AutoresetMode mode)
      : envs({{{2, false}, {9, false}}, {{kSteps, false}}}, mode),
        config(small()),
        actor(envs.single_observation_space(), envs.single_action_space(), 2, config, 1),
        learner(envs.single_observation_space(), envs.single_action_space(), config, 2),
        collected(actor.make_room()) {
    actor.source().begin(envs, 0);
    actor.collect_into(collected, 0);
    const auto values = rollout().next_value();
    by_actor.assign(values.begin(), values.end());
    Advantages advantages;
    estimate_off_policy(rollout(), learner.policy(), config, config, advantages);
    at_end.resize(2);
    learner.policy().model().forward(rollout().obs(kSteps), {}, {}, at_end);
  }

  static ImpalaConfig small() {
    ImpalaConfig config;
    config.num_steps = kSteps;
    config.policy_hidden = config.value_hidden = {4};
    return config;
  }
  collect::Rollout& rollout() { return collected.rollout; }
  float by_actor_at(int t, std::size_t env) const {
    return by_actor[static_cast<std::size_t>(t) * 2 + env];
  }

  ScriptedVectorEnv envs;
  const ImpalaConfig config;
  RolloutActor actor;
  Agent learner;
  CollectedRollout collected;
  std::vector<float> by_actor, at_end;
};

TEST(OffPolicyAdvantages, TheEndOfATruncatedEpisodeIsWorthWhatThePolicyThatLearnsSays) {
  ValuedByAnother valued(AutoresetMode::kNextStep);
  auto& rollout = valued.rollout();
  ASSERT_TRUE(rollout.truncated(1)[0] != 0 && rollout.truncated(kSteps - 1)[1] != 0);
  EXPECT_EQ(rollout.next_value(1)[0], rollout.value(2)[0]) << "its last observation is row 2's";
  EXPECT_NE(rollout.next_value(1)[0], valued.by_actor_at(1, 0));
  EXPECT_EQ(rollout.next_value(kSteps - 1)[1], valued.at_end[1]);
  EXPECT_NE(rollout.next_value(kSteps - 1)[1], valued.by_actor_at(kSteps - 1, 1));
}

TEST(OffPolicyAdvantages, AnEndThatAnotherEpisodeHasReplacedKeepsTheValueOfThePolicyThatActed) {
  ValuedByAnother valued(AutoresetMode::kSameStep);
  auto& rollout = valued.rollout();
  ASSERT_TRUE(rollout.truncated(1)[0] != 0 && rollout.truncated(kSteps - 1)[1] != 0);
  EXPECT_EQ(rollout.next_value(1)[0], valued.by_actor_at(1, 0));
  EXPECT_EQ(rollout.next_value(kSteps - 1)[1], valued.by_actor_at(kSteps - 1, 1));
  EXPECT_EQ(rollout.next_value(0)[0], rollout.value(1)[0]);
  EXPECT_EQ(rollout.next_value(kSteps - 1)[0], valued.at_end[0]);
}

}  // namespace
}  // namespace shoal::learn
