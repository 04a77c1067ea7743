#include "shoal/learn/dqn/dqn.h"

#include <gtest/gtest.h>

#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/run/evaluator.h"

namespace shoal::learn {
namespace {

using vector::VectorEnv;

std::unique_ptr<VectorEnv> make(const char* id, int num_envs) {
  return VectorEnv::create(id, {.num_envs = num_envs, .backend = vector::Backend::kSerial});
}

TEST(Dqn, ItsDefaultsAreThoseOfStableBaselines3ButForDouble) {
  const DqnConfig config;
  EXPECT_EQ(config.learning_rate, 1e-4);
  EXPECT_EQ(config.buffer_size, 1'000'000);
  EXPECT_EQ(config.learning_starts, 100);
  EXPECT_EQ(config.batch_size, 32);
  EXPECT_EQ(config.tau, 1.0);
  EXPECT_EQ(config.train_freq, 4);
  EXPECT_EQ(config.gradient_steps, 1);
  EXPECT_EQ(config.target_update_interval, 10'000);
  EXPECT_EQ(config.exploration_fraction, 0.1);
  EXPECT_EQ(config.exploration_final, 0.05);
  EXPECT_EQ(config.max_grad_norm, 10);
  EXPECT_EQ(config.activation, Activation::kRelu);
  EXPECT_FALSE(config.orthogonal_init);
  EXPECT_FALSE(std::get<DqnConfig>(preset("sb3", "dqn").algorithm).double_dqn);
}

TEST(Dqn, LearnsCartPoleByItsPreset) {
  const TrainConfig config = preset("CartPole-v1", "dqn");
  const auto envs = make("shoal/CartPole-v1", config.num_envs);
  const auto evaluated = make("shoal/CartPole-v1", 10);
  Dqn dqn(envs->single_observation_space(), envs->single_action_space(), config.num_envs,
          std::get<DqnConfig>(config.algorithm), 1);
  dqn.begin(*envs);
  double best = 0;
  for (std::int64_t next = config.eval_every;
       best < 475 && dqn.steps() < config.learner().total_steps;) {
    dqn.iterate();
    if (dqn.steps() < next) continue;
    next += config.eval_every;
    best = evaluate(*evaluated, dqn.acting(), true, {.episodes = 20, .seed = 5}).mean_return();
  }
  EXPECT_GE(best, 475);
}

}  // namespace
}  // namespace shoal::learn
