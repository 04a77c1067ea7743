#include "shoal/learn/dqn/dqn.h"

#include <gtest/gtest.h>

#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/testing/learners.h"

namespace shoal::learn {
namespace {

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
  EXPECT_GE(best_return_by_preset("CartPole-v1", "dqn", 475, 5000, 5000), 475);
}

}  // namespace
}  // namespace shoal::learn
