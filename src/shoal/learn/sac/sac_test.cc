#include "shoal/learn/sac/sac.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/testing/learners.h"

namespace shoal::learn {
namespace {

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
  EXPECT_GE(best_return_by_preset("Pendulum-v1", "sac", -200, 3000, 1000), -200);
}

TEST(Sac, PicturesAreRefusedByName) {
  const env::Space image{env::Box{{shm::DType::kU8, {84, 84, 4}}, {0}, {255}}};
  const env::Space action{env::Box{{shm::DType::kF32, {1}}, {-1}, {1}}};
  try {
    make_learner(image, action, 1, SacConfig(), 1);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("sac does not learn from images"));
  }
}

}  // namespace
}  // namespace shoal::learn
