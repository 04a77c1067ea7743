// SAC's update against the same in double precision, whose gradients are taken by differences.
#include "shoal/learn/sac/sac_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "shoal/learn/sac/squashed_gaussian.h"
#include "shoal/learn/testing/double_networks.h"
#include "shoal/learn/testing/replay_batch.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::size_t kDense = 4;
constexpr std::size_t kDimensions = 2;
constexpr std::size_t kRows = 5;
constexpr std::uint64_t kNumber = 17;

const env::Space& observation() {
  static const env::Space space{env::Box{{shm::DType::kF32, {kDense}}, {-10}, {10}}};
  return space;
}
env::Space box(std::vector<double> low, std::vector<double> high) {
  return env::Space{env::Box{{shm::DType::kF32, {kDimensions}}, std::move(low), std::move(high)}};
}

/// Adam's first step is along the gradient itself when eps is far above it and equal to the rate.
SacConfig plain_steps() {
  SacConfig config;
  config.learning_rate = config.adam_eps = 1e6;
  config.policy_hidden = {9, 8};
  config.value_hidden = {11, 7};
  config.activation = Activation::kTanh;
  config.entropy_coef = 0.4;
  config.tau = 0.125;
  return config;
}

struct Drawn {
  std::vector<double> action;
  double logp = 0;
};

/// All of one update, in Stable-Baselines3's order.
struct Oracle {
  const RandomBatch& batch;
  std::vector<float> here_noise, next_noise;

  Oracle(const RandomBatch& its, const SacPolicy& policy)
      : batch(its), here_noise(kRows * kDimensions), next_noise(kRows * kDimensions) {
    policy.fill_noise(Stream::kNoise, kNumber, 0, here_noise);
    policy.fill_noise(Stream::kNoise, kNumber, 1, next_noise);
  }

  static Drawn draw(const Values& actor, const std::vector<float>& obs,
                    const std::vector<float>& noise, std::size_t r) {
    const auto head = forward(actor, "actor", RandomBatch::row(obs, r, kDense), Activation::kTanh);
    Drawn drawn;
    for (std::size_t k = 0; k < kDimensions; ++k) {
      const double e = noise[r * kDimensions + k];
      const double log_std = head[kDimensions + k];
      const double x = head[k] + e * std::exp(log_std);
      drawn.action.push_back(std::tanh(x));
      drawn.logp += -0.5 * e * e - log_std - 0.5 * std::log(2 * std::numbers::pi) -
                    std::log(1 - std::tanh(x) * std::tanh(x));
    }
    return drawn;
  }

  static double q(const Values& critics, const std::string& name, std::vector<double> obs,
                  const std::vector<double>& action) {
    obs.insert(obs.end(), action.begin(), action.end());
    return forward(critics, name, std::move(obs), Activation::kTanh)[0];
  }

  std::vector<double> targets(const Values& actor, const Values& targets, double alpha) const {
    std::vector<double> out;
    for (std::size_t r = 0; r < kRows; ++r) {
      const Drawn next = draw(actor, batch.next_obs, next_noise, r);
      const auto obs = RandomBatch::row(batch.next_obs, r, kDense);
      const double value = std::min(q(targets, "target.critic.0", obs, next.action),
                                    q(targets, "target.critic.1", obs, next.action)) -
                           alpha * next.logp;
      out.push_back(batch.returns[r] + batch.discounts[r] * value);
    }
    return out;
  }

  double critic_loss(const Values& critics, const std::vector<double>& targets) const {
    double sum = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto obs = RandomBatch::row(batch.obs, r, kDense);
      const auto action = RandomBatch::row(batch.floats, r, kDimensions);
      for (const char* name : {"critic.0", "critic.1"}) {
        const double error = q(critics, name, obs, action) - targets[r];
        sum += 0.5 * batch.weights[r] * error * error;
      }
    }
    return sum / kRows;
  }

  double actor_loss(const Values& actor, const Values& critics, double alpha) const {
    double sum = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      const Drawn here = draw(actor, batch.obs, here_noise, r);
      const auto obs = RandomBatch::row(batch.obs, r, kDense);
      sum += alpha * here.logp - std::min(q(critics, "critic.0", obs, here.action),
                                          q(critics, "critic.1", obs, here.action));
    }
    return sum / kRows;
  }

  double mean_logp(const Values& actor) const {
    double sum = 0;
    for (std::size_t r = 0; r < kRows; ++r) sum += draw(actor, batch.obs, here_noise, r).logp;
    return sum / kRows;
  }
};

LearnerState state_of(SacUpdate& update) {
  LearnerState state;
  update.agent().save(state);
  update.save(state);
  return state;
}

TEST(SacUpdate, IsThatOfDoublePrecisionInItsOrder) {
  const SacConfig config = plain_steps();
  SacUpdate update(observation(), box({-1}, {1}), config, 3);
  const RandomBatch batch(kRows, kDense, 0, kDimensions, 5);
  const Oracle oracle(batch, update.agent());
  const LearnerState before = state_of(update);
  const Values actor = values_of(before.policy);
  const Values critics = values_of(before.optimizer, "critic.");
  const Values targets = values_of(before.optimizer, "target.");
  const double alpha = config.entropy_coef;

  std::vector<double> td_errors(kRows);
  OffPolicySums sums;
  update.learn(batch.view(), {.number = kNumber, .remaining = 1}, td_errors, sums);
  const LearnerState after = state_of(update);
  const Values new_critics = values_of(after.optimizer, "critic.");

  const auto wanted = oracle.targets(actor, targets, alpha);
  const auto by_critics = differences(
      critics, "critic.", [&](const Values& v) { return oracle.critic_loss(v, wanted); });
  EXPECT_LT(greatest_difference(minus(critics, new_critics), by_critics), 2e-4);
  EXPECT_NEAR(sums.value_loss, oracle.critic_loss(critics, wanted), 1e-4);

  const auto by_actor = differences(
      actor, "actor", [&](const Values& v) { return oracle.actor_loss(v, new_critics, alpha); });
  EXPECT_LT(greatest_difference(minus(actor, values_of(after.policy)), by_actor), 2e-4)
      << "through the critics after their step, by the temperature from before";
  EXPECT_NEAR(sums.policy_loss, oracle.actor_loss(actor, new_critics, alpha), 1e-4);

  const double mean = oracle.mean_logp(actor);
  EXPECT_NEAR(sums.entropy, -mean, 1e-4);
  EXPECT_NEAR(std::log(update.temperature()), std::log(alpha) + mean - 2.0, 1e-4)
      << "the target entropy is -2 here";

  for (const auto& [name, numbers] : values_of(after.optimizer, "target."))
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double from = targets.at(name)[i];
      const double to = new_critics.at(name.substr(7))[i];
      EXPECT_NEAR(numbers[i], from + config.tau * (to - from), 1e-6);
    }
}

TEST(SacUpdate, ATemperatureThatIsGivenStays) {
  SacConfig config = plain_steps();
  config.automatic_entropy = false;
  config.entropy_coef = 0.25;
  SacUpdate update(observation(), box({-1}, {1}), config, 3);
  const RandomBatch batch(kRows, kDense, 0, kDimensions, 5);
  std::vector<double> td_errors(kRows);
  OffPolicySums sums;
  update.learn(batch.view(), {.number = 0, .remaining = 1}, td_errors, sums);
  EXPECT_EQ(update.temperature(), 0.25);
}

TEST(SacPolicy, ActionsAreScaledToTheBoundsOfEachElement) {
  SacPolicy policy(observation(), box({-2, 10}, {2, 30}), plain_steps(), 1);
  std::vector<float> unit = {-1, -1, 0, 0.5, 1, 1}, out(6);
  const shm::TensorSpec spec{shm::DType::kF32, {kDimensions}};
  policy.decode({reinterpret_cast<std::byte*>(unit.data()), 3, spec},
                {reinterpret_cast<std::byte*>(out.data()), 3, spec});
  EXPECT_EQ(out, (std::vector<float>{-2, 10, 0, 25, 2, 30}));
}

TEST(SacPolicy, SpacesItCannotLearnAreRefusedWithWhatCan) {
  const auto error = [](const env::Space& action) -> std::string {
    try {
      SacPolicy(observation(), action, plain_steps(), 1);
    } catch (const InvalidArgument& refused) {
      return refused.what();
    }
    return "";
  };
  EXPECT_NE(
      error(env::Space{env::Discrete{.n = 3, .start = 0, .dtype = shm::DType::kI64}}).find("dqn"),
      std::string::npos);
  EXPECT_NE(error(box({}, {})).find("bounds"), std::string::npos);
  EXPECT_EQ(error(box({-1}, {1})), "");
}

}  // namespace
}  // namespace shoal::learn
