// One learner on own kernels, one on LibTorch's autograd: they learn the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "shoal/learn/ppo/ppo.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {
namespace {

TEST(PpoWithAutograd, LearnsWhatTheOwnKernelsLearn) {
  // One iteration on the same rollout: the parameters agree to rounding, which Adam's first steps
  // magnify a little.
  auto run = [](bool fused) {
    const auto envs = vector::VectorEnv::create(
        "shoal/CartPole-v1", {.num_envs = 8, .backend = vector::Backend::kSerial});
    PpoConfig config;
    config.num_steps = 40;
    config.batch_size = 64;
    config.epochs = 1;
    config.learning_rate = 1e-3;
    config.normalize_obs = true;
    config.normalize_reward = true;
    config.fused = fused;
    Ppo ppo(envs->single_observation_space(), envs->single_action_space(), 8, config, 3);
    ppo.begin(*envs);
    const IterationStats stats = ppo.iterate();
    return std::pair(stats, ppo.state());
  };
  const auto [fused, fused_state] = run(true);
  const auto [autograd, autograd_state] = run(false);
  EXPECT_EQ(fused.finished, autograd.finished) << "acting differs";
  EXPECT_NEAR(fused.policy_loss, autograd.policy_loss, 1e-5);
  EXPECT_NEAR(fused.value_loss, autograd.value_loss, 1e-4);
  EXPECT_NEAR(fused.grad_norm, autograd.grad_norm, 1e-4);
  for (std::size_t p = 0; p < fused_state.policy.size(); ++p) {
    const auto* a = reinterpret_cast<const float*>(fused_state.policy[p].bytes.data());
    const auto* b = reinterpret_cast<const float*>(autograd_state.policy[p].bytes.data());
    double difference = 0;
    for (std::int64_t k = 0; k < fused_state.policy[p].spec.numel(); ++k) {
      difference = std::max(difference, static_cast<double>(std::abs(a[k] - b[k])));
    }
    EXPECT_LT(difference, 3e-4) << fused_state.policy[p].name;  // learning rate 1e-3, 5 minibatches
  }
}

}  // namespace
}  // namespace shoal::learn
