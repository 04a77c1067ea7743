#include "shoal/learn/sac/sac.h"

#include <gtest/gtest.h>

#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/run/evaluator.h"

namespace shoal::learn {
namespace {

using vector::VectorEnv;

std::unique_ptr<VectorEnv> make(const char* id, int num_envs) {
  return VectorEnv::create(id, {.num_envs = num_envs, .backend = vector::Backend::kSerial});
}

TEST(Sac, ItsDefaultsAreThoseOfStableBaselines3) {
  const SacConfig config;
  EXPECT_EQ(config.learning_rate, 3e-4);
  EXPECT_EQ(config.buffer_size, 1'000'000);
  EXPECT_EQ(config.learning_starts, 100);
  EXPECT_EQ(config.batch_size, 256);
  EXPECT_EQ(config.tau, 0.005);
  EXPECT_EQ(config.train_freq, 1);
  EXPECT_EQ(config.gradient_steps, 1);
  EXPECT_EQ(config.entropy_coef, 1.0);
  EXPECT_TRUE(config.automatic_entropy);
  EXPECT_FALSE(config.target_entropy.has_value());
  EXPECT_EQ(config.max_grad_norm, 0);
  EXPECT_EQ(config.policy_hidden, (std::vector<int>{256, 256}));
  EXPECT_EQ(config.activation, Activation::kRelu);
}

TEST(Sac, LearnsPendulumByItsPreset) {
  const TrainConfig config = preset("Pendulum-v1", "sac");
  const auto envs = make("shoal/Pendulum-v1", config.num_envs);
  const auto evaluated = make("shoal/Pendulum-v1", 10);
  Sac sac(envs->single_observation_space(), envs->single_action_space(), config.num_envs,
          std::get<SacConfig>(config.algorithm), 1);
  sac.begin(*envs);
  double best = -1e9;
  for (std::int64_t next = 3000; best < -200 && sac.steps() < config.learner().total_steps;) {
    sac.iterate();
    if (sac.steps() < next) continue;
    next += 1000;
    best = evaluate(*evaluated, sac.acting(), true, {.episodes = 20, .seed = 5}).mean_return();
  }
  EXPECT_GE(best, -200);
}

}  // namespace
}  // namespace shoal::learn
