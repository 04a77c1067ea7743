// DQN's update against the same in double precision, whose gradient is taken by differences.
#include "shoal/learn/dqn/dqn_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "shoal/learn/dqn/dqn_loss.h"
#include "shoal/learn/testing/double_networks.h"
#include "shoal/learn/testing/replay_batch.h"

namespace shoal::learn {
namespace {

constexpr std::size_t kDense = 5;
constexpr std::size_t kActions = 3;
constexpr std::size_t kRows = 6;

const env::Space& observation() {
  static const env::Space space{env::Box{{shm::DType::kF32, {kDense}}, {-10}, {10}}};
  return space;
}
const env::Space& action() {
  static const env::Space space{
      env::Discrete{.n = kActions, .start = 0, .dtype = shm::DType::kI64}};
  return space;
}

/// Adam's first step is along the gradient itself when eps is far above it and equal to the rate.
DqnConfig plain_steps(bool double_dqn, bool dueling, TdLoss loss) {
  DqnConfig config;
  config.learning_rate = config.adam_eps = 1e6;
  config.max_grad_norm = 0;
  config.policy_hidden = {9, 7};
  config.activation = Activation::kTanh;
  config.double_dqn = double_dqn;
  config.dueling = dueling;
  config.td_loss = loss;
  return config;
}

std::vector<double> q_of(const Values& values, const std::string& prefix, std::vector<double> x,
                         bool dueling) {
  if (!dueling) return forward(values, prefix + "q", std::move(x), Activation::kTanh);
  const auto features = forward(values, prefix + "trunk", std::move(x), Activation::kTanh, true);
  const auto value = forward(values, prefix + "value", features, Activation::kTanh);
  auto q = forward(values, prefix + "advantage", features, Activation::kTanh);
  const double mean = std::accumulate(q.begin(), q.end(), 0.0) / static_cast<double>(q.size());
  for (double& a : q) a += value[0] - mean;
  return q;
}

std::size_t best(const std::vector<double>& q) {
  return static_cast<std::size_t>(std::ranges::max_element(q) - q.begin());
}

/// The loss of the paper, by the online parameters; the targets are constants.
struct Oracle {
  const RandomBatch& batch;
  const DqnConfig& config;
  std::vector<double> targets;

  Oracle(const RandomBatch& its, const DqnConfig& its_config, const Values& online,
         const Values& target)
      : batch(its), config(its_config) {
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto next = RandomBatch::row(batch.next_obs, r, kDense);
      const auto q = q_of(target, "target.", next, config.dueling);
      const auto chooses = config.double_dqn ? q_of(online, "", next, config.dueling) : q;
      targets.push_back(batch.returns[r] + batch.discounts[r] * q[best(chooses)]);
    }
  }
  double error(const Values& online, std::size_t r) const {
    const auto q = q_of(online, "", RandomBatch::row(batch.obs, r, kDense), config.dueling);
    return q[static_cast<std::size_t>(batch.indices[r])] - targets[r];
  }
  double operator()(const Values& online) const {
    double sum = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      const double e = std::abs(error(online, r));
      const double huber = e < 1 ? 0.5 * e * e : e - 0.5;
      sum += batch.weights[r] * (config.td_loss == TdLoss::kHuber ? huber : e * e);
    }
    return sum / kRows;
  }
};

void expect_the_update_of_double_precision(const DqnConfig& config) {
  DqnUpdate update(observation(), action(), config, 3);
  LearnerState before;
  // Online and target differ after one update.
  for (unsigned turn = 0; turn < 2; ++turn) {
    const RandomBatch batch(kRows, kDense, kActions, 0, 10 + turn);
    before = {};
    update.agent().save(before);
    update.save(before);
    const Values online = values_of(before.policy);
    const Oracle oracle(batch, config, online, values_of(before.optimizer, "target."));
    std::vector<double> td_errors(kRows);
    OffPolicySums sums;
    update.learn(batch.view(), {.number = turn, .remaining = 1}, td_errors, sums);
    for (std::size_t r = 0; r < kRows; ++r)
      EXPECT_NEAR(td_errors[r], std::abs(oracle.error(online, r)), 1e-4);
    EXPECT_NEAR(sums.value_loss, oracle(online), 1e-4);
    if (turn > 0) continue;  // Adam's average is of two gradients then
    LearnerState after;
    update.agent().save(after);
    EXPECT_LT(greatest_difference(minus(online, values_of(after.policy)),
                                  differences(online, "", oracle)),
              2e-4);
  }
}

TEST(DqnUpdate, IsThatOfDoublePrecisionForEverySwitch) {
  for (const bool double_dqn : {false, true})
    for (const bool dueling : {false, true})
      for (const TdLoss loss : {TdLoss::kHuber, TdLoss::kMse})
        expect_the_update_of_double_precision(plain_steps(double_dqn, dueling, loss));
}

TEST(DqnLoss, DoubleTakesTheActionOfOneNetworkAndTheValueOfTheOther) {
  const std::vector<float> q = {1, 2, 3};
  const std::vector<float> q_next = {5, 9, 0};
  const std::vector<float> q_target = {7, -1, 4};
  const std::vector<std::int32_t> taken = {1};
  const std::vector<float> returns = {0.5F}, discounts = {0.9F}, weights = {0.5F};
  std::vector<float> d_q(3);
  std::vector<double> errors(1);
  DqnRows rows{.actions = 3,
               .q = q,
               .q_next = q_next,
               .q_target = q_target,
               .action = taken,
               .returns = returns,
               .discounts = discounts,
               .weights = weights};
  DqnLosses losses = dqn_loss(rows, TdLoss::kHuber, d_q, errors);
  EXPECT_NEAR(errors[0], 2.4, 1e-6);  // 2 - (0.5 + 0.9 * -1)
  EXPECT_NEAR(losses.loss, 0.5 * (2.4 - 0.5), 1e-6);
  EXPECT_NEAR(losses.q_value, 2, 1e-6);
  EXPECT_NEAR(d_q[1], 0.5, 1e-6);
  rows.q_next = {};
  losses = dqn_loss(rows, TdLoss::kMse, d_q, errors);
  EXPECT_NEAR(errors[0], 4.8, 1e-6);  // 2 - (0.5 + 0.9 * 7)
  EXPECT_NEAR(d_q[1], -4.8, 1e-6);
  EXPECT_EQ(d_q[0], 0);
}

TEST(DqnUpdate, TheTargetFollowsWhenItIsDueByTau) {
  DqnConfig config = plain_steps(true, false, TdLoss::kHuber);
  config.target_update_interval = 10;
  config.tau = 0.25;
  DqnUpdate update(observation(), action(), config, 3);
  const RandomBatch batch(kRows, kDense, kActions, 0, 1);
  std::vector<double> td_errors(kRows);
  OffPolicySums sums;
  const auto target = [&] {
    LearnerState state;
    update.save(state);
    return values_of(state.optimizer, "target.");
  };
  const Values first = target();
  update.learn(batch.view(), {.number = 0, .remaining = 1}, td_errors, sums);
  update.stepped(0, 8);
  EXPECT_EQ(target(), first);
  update.stepped(8, 16);
  LearnerState online;
  update.agent().save(online);
  for (const auto& [name, numbers] : values_of(online.policy))
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double before = first.at("target." + name)[i];
      EXPECT_NEAR(target().at("target." + name)[i], before + 0.25 * (numbers[i] - before), 1e-6);
    }
}

// What the target is after steps from `before` to `after`, made in pieces of `at_once`.
Values target_after(double tau, std::int64_t before, std::int64_t after, std::int64_t at_once) {
  DqnConfig config = plain_steps(false, false, TdLoss::kHuber);
  config.learning_rate = config.adam_eps = 1;
  config.target_update_interval = 4;
  config.tau = tau;
  DqnUpdate update(observation(), action(), config, 3);
  const RandomBatch batch(kRows, kDense, kActions, 0, 1);
  std::vector<double> td_errors(kRows);
  OffPolicySums sums;
  update.learn(batch.view(), {.number = 0, .remaining = 1}, td_errors, sums);
  for (; before < after; before += at_once) update.stepped(before, before + at_once);
  LearnerState state;
  update.save(state);
  return values_of(state.optimizer, "target.");
}

TEST(DqnUpdate, TheTargetMovesOnceForEachIntervalWhateverTheNumberOfEnvironments) {
  for (const double tau : {0.25, 0.005, 1.0}) {
    const Values one_by_one = target_after(tau, 2, 26, 1);  // six moves
    EXPECT_NE(target_after(tau, 2, 3, 1), one_by_one);
    EXPECT_LT(greatest_difference(target_after(tau, 2, 26, 8), one_by_one), 1e-5) << tau;
    EXPECT_LT(greatest_difference(target_after(tau, 2, 26, 24), one_by_one), 1e-5) << tau;
  }
}

TEST(Dqn, ExplorationFallsOverItsFractionOfTheRunAndStays) {
  DqnConfig config;
  config.exploration_initial = 0.8;
  config.exploration_final = 0.2;
  config.exploration_fraction = 0.5;
  EXPECT_DOUBLE_EQ(exploration(config, 1.0), 0.8);
  EXPECT_DOUBLE_EQ(exploration(config, 0.75), 0.5);
  EXPECT_DOUBLE_EQ(exploration(config, 0.5), 0.2);
  EXPECT_DOUBLE_EQ(exploration(config, 0.0), 0.2);
  config.exploration_fraction = 0;
  EXPECT_DOUBLE_EQ(exploration(config, 1.0), 0.2);
}

// Stable-Baselines3 draws once for all environments: they explore together or not at all.
TEST(QPolicy, EachEnvironmentDrawsForItselfWhetherItExplores) {
  DqnConfig config;
  QPolicy policy(observation(), action(), config, 1);
  constexpr std::int64_t kEnvs = 64;
  const RandomBatch batch(kEnvs, kDense, kActions, 0, 1);
  std::vector<std::int32_t> greedy(kEnvs), mixed(kEnvs);
  const auto view = [](std::vector<std::int32_t>& actions) {
    return shm::TensorView{
        reinterpret_cast<std::byte*>(actions.data()), kEnvs, {shm::DType::kI32, {1}}};
  };
  policy.choose(batch.obs_views, 0, Stream::kAction, 7, view(greedy));
  int other = 0;
  for (std::uint64_t step = 0; step < 100; ++step) {
    policy.choose(batch.obs_views, 0.3, Stream::kAction, step, view(mixed));
    const auto here = std::ranges::count_if(mixed, [&, k = 0](std::int32_t a) mutable {
      return a != greedy[static_cast<std::size_t>(k++)];
    });
    EXPECT_LT(here, 40);
    other += static_cast<int>(here);
  }
  EXPECT_NEAR(other, 6400 * 0.3 * 2 / 3, 150) << "a third of random actions are the best one";
}

}  // namespace
}  // namespace shoal::learn
