#include "shoal/learn/appo/appo.h"

#include <gtest/gtest.h>

#include <memory>

#include "shoal/learn/impala/impala.h"
#include "shoal/learn/testing/learners.h"
#include "shoal/learn/testing/policy_difference.h"
#include "shoal/os/error.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {
namespace {

constexpr const char* kCartPole = "shoal/CartPole-v1";

// The ratio by the policy that the update began with is then 1, and its derivative that of the
// log-probability: what is left is V-trace.
TEST(Appo, WithOneEpochAndOneMinibatchIsImpala) {
  for (const auto optimizer : {OptimizerKind::kAdam, OptimizerKind::kRmsProp}) {
    ImpalaConfig impala_config;
    impala_config.optimizer = optimizer;
    impala_config.deterministic = true;
    impala_config.max_lag = 2;
    impala_config.gae_lambda = 0.9;
    AppoConfig appo_config;
    static_cast<LearnerConfig&>(appo_config) = impala_config;
    static_cast<AsynchronousOptions&>(appo_config) = impala_config;
    appo_config.epochs = 1;
    appo_config.batch_size = 1'000'000;
    const auto appo_envs = serial_envs(kCartPole, 8);
    const auto impala_envs = serial_envs(kCartPole, 8);
    const auto appo = learner_for(*appo_envs, appo_config, 7);
    const auto impala = learner_for(*impala_envs, impala_config, 7);
    appo->begin(*appo_envs);
    impala->begin(*impala_envs);
    for (int k = 0; k < 20; ++k) {
      const LearnerState before = appo->state();
      const IterationStats ours = appo->iterate();
      const IterationStats theirs = impala->iterate();
      EXPECT_EQ(ours.finished, theirs.finished);
      EXPECT_EQ(ours.policy_lag, theirs.policy_lag);
      EXPECT_NEAR(ours.grad_norm, theirs.grad_norm, 1e-4 * theirs.grad_norm);
      EXPECT_NEAR(ours.approx_kl, 0, 1e-6);
      EXPECT_EQ(ours.clip_fraction, 0);
      ASSERT_LT(policy_difference(appo->state(), impala->state()), 1e-4) << "iteration " << k + 1;
      ASSERT_GT(policy_difference(appo->state(), before), 1e-5) << "iteration " << k + 1;
    }
  }
}

TEST(Appo, GoesThroughEpochsAndMinibatches) {
  const auto envs = serial_envs(kCartPole, 4);
  AppoConfig config;
  config.batch_size = 32;
  config.epochs = 3;
  const auto appo = learner_for(*envs, config, 1);
  appo->begin(*envs);
  const IterationStats stats = appo->iterate();
  EXPECT_EQ(stats.epochs, 3);
  EXPECT_EQ(stats.steps, 128);
  EXPECT_GT(stats.approx_kl, 0);
  EXPECT_DOUBLE_EQ(stats.clip_range, 0.1);
}

TEST(Appo, OptionsOfPposOwnAdvantagesAreRefused) {
  for (bool PpoConfig::* option :
       {&PpoConfig::recompute_advantages, &PpoConfig::normalize_returns}) {
    AppoConfig config;
    config.*option = true;
    EXPECT_THROW(validate(config), InvalidArgument);
  }
}

}  // namespace
}  // namespace shoal::learn
