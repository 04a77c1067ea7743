#include "shoal/learn/network/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace shoal::learn {
namespace {

ActionDistribution over(env::Space space) {
  return ActionDistribution(collect::ActionDecoder(space));
}

// A view of `rows` actions in `bytes`.
template <class T>
shm::TensorView view(std::vector<T>& values, std::size_t rows) {
  const auto width = static_cast<std::int64_t>(values.size() / rows);
  return {reinterpret_cast<std::byte*>(values.data()),
          static_cast<std::int64_t>(rows),
          {shm::dtype_of<T>(), {width}}};
}

TEST(Distribution, CategoricalClosedForms) {
  const auto distribution = over(env::Discrete{.n = 3});
  const std::vector<float> head{std::log(1.0F), std::log(2.0F),
                                std::log(5.0F)};  // probabilities 1/8, 2/8, 5/8
  std::vector<std::int32_t> action{1};
  std::vector<float> logp(1), entropy(1), log_probs(3);
  distribution.evaluate(head, {}, view(action, 1), logp, entropy, log_probs);
  EXPECT_NEAR(logp[0], std::log(0.25), 1e-6);
  EXPECT_NEAR(entropy[0], -(std::log(0.125) / 8 + std::log(0.25) / 4 + 5 * std::log(0.625) / 8),
              1e-6);
}

TEST(Distribution, LargeLogitsDoNotOverflow) {
  const auto distribution = over(env::Discrete{.n = 2});
  const std::vector<float> head{1000, -1000};
  std::vector<std::int32_t> action{0};
  std::vector<float> logp(1), entropy(1), log_probs(2), d_logp{1}, d_head(2);
  distribution.evaluate(head, {}, view(action, 1), logp, entropy, log_probs);
  EXPECT_EQ(logp[0], 0);
  EXPECT_EQ(entropy[0], 0);
  distribution.backward(head, {}, view(action, 1), log_probs, d_logp, 0.1F, d_head, {});
  EXPECT_EQ(d_head, (std::vector<float>{0, 0}));
}

TEST(Distribution, MultiCategoricalComponentsAreIndependent) {
  const auto distribution = over(env::MultiDiscrete{.nvec = {2, 3}, .start = {}, .shape = {2}});
  EXPECT_EQ(distribution.head_size(), 5U);
  EXPECT_EQ(distribution.action_size(), 2U);
  const std::vector<float> head{std::log(1.0F), std::log(3.0F), std::log(1.0F), std::log(2.0F),
                                std::log(5.0F)};
  std::vector<std::int32_t> action{1, 2};
  std::vector<float> logp(1), entropy(1), log_probs(5);
  distribution.evaluate(head, {}, view(action, 1), logp, entropy, log_probs);
  EXPECT_NEAR(logp[0], std::log(0.75 * 0.625), 1e-6);
  const double first = -(0.25 * std::log(0.25) + 0.75 * std::log(0.75));
  const double second = -(std::log(0.125) / 8 + std::log(0.25) / 4 + 5 * std::log(0.625) / 8);
  EXPECT_NEAR(entropy[0], first + second, 1e-6);
}

TEST(Distribution, GaussianClosedForms) {
  const auto distribution = over(env::Box{{shm::DType::kF32, {2}}, {-1}, {1}});
  const std::vector<float> head{1, -2};
  const std::vector<float> log_std{std::log(2.0F), std::log(0.5F)};
  std::vector<float> action{3, -2};
  std::vector<float> logp(1), entropy(1);
  distribution.evaluate(head, log_std, view(action, 1), logp, entropy, {});
  const double log_2_pi = std::log(2 * std::numbers::pi);
  EXPECT_NEAR(logp[0],
              (-0.5 - std::log(2.0) - 0.5 * log_2_pi) + (0 - std::log(0.5) - 0.5 * log_2_pi), 1e-6);
  EXPECT_NEAR(entropy[0], std::log(2.0) + std::log(0.5) + 1 + log_2_pi, 1e-6);
}

TEST(Distribution, CategoricalSamplesHaveTheirFrequencies) {
  const auto distribution = over(env::Discrete{.n = 3});
  constexpr std::size_t kRows = 20'000;
  std::vector<float> head;
  for (std::size_t r = 0; r < kRows; ++r)
    head.insert(head.end(), {std::log(1.0F), std::log(2.0F), std::log(5.0F)});
  std::vector<std::int32_t> actions(kRows);
  std::vector<float> logp(kRows);
  distribution.sample(head, {}, Philox(3), Stream::kAction, 17, view(actions, kRows), logp);
  int count[3] = {};
  for (std::size_t r = 0; r < kRows; ++r) {
    ASSERT_GE(actions[r], 0);
    ASSERT_LT(actions[r], 3);
    ++count[actions[r]];
    ASSERT_NEAR(logp[r], std::log((actions[r] == 0 ? 1 : actions[r] == 1 ? 2 : 5) / 8.0), 1e-6);
  }
  EXPECT_NEAR(count[0] / static_cast<double>(kRows), 0.125, 0.01);
  EXPECT_NEAR(count[1] / static_cast<double>(kRows), 0.25, 0.013);
}

TEST(Distribution, GaussianSamplesHaveTheirMoments) {
  const auto distribution = over(env::Box{{shm::DType::kF32, {3}}, {-1}, {1}});
  constexpr std::size_t kRows = 20'000;
  std::vector<float> head;
  for (std::size_t r = 0; r < kRows; ++r) head.insert(head.end(), {1, -2, 0});
  const std::vector<float> log_std{std::log(2.0F), std::log(0.5F), 0};
  std::vector<float> actions(kRows * 3);
  std::vector<float> logp(kRows), expected(kRows), entropy(kRows);
  distribution.sample(head, log_std, Philox(3), Stream::kAction, 17, view(actions, kRows), logp);
  distribution.evaluate(head, log_std, view(actions, kRows), expected, entropy, {});
  EXPECT_EQ(logp, expected) << "sampling and evaluating must agree on the bits";
  for (std::size_t k = 0; k < 3; ++k) {
    double mean = 0, squares = 0;
    for (std::size_t r = 0; r < kRows; ++r) mean += actions[r * 3 + k] / kRows;
    for (std::size_t r = 0; r < kRows; ++r)
      squares += std::pow(actions[r * 3 + k] - mean, 2) / kRows;
    EXPECT_NEAR((mean - head[k]) / std::exp(log_std[k]), 0, 0.03);
    EXPECT_NEAR(std::sqrt(squares) / std::exp(log_std[k]), 1, 0.03);
  }
}

TEST(Distribution, ASampleDependsOnSeedStreamStepAndRowAlone) {
  const auto distribution = over(env::Box{{shm::DType::kF32, {1}}, {-1}, {1}});
  const std::vector<float> log_std{0};
  auto draw = [&](std::size_t rows, std::uint64_t seed, Stream stream, std::uint64_t step) {
    std::vector<float> actions(rows);
    distribution.sample(std::vector<float>(rows), log_std, Philox(seed), stream, step,
                        view(actions, rows), {});
    return actions;
  };
  const auto many = draw(8, 1, Stream::kAction, 2);
  const auto few = draw(3, 1, Stream::kAction, 2);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(many[0], many[1]);
  EXPECT_NE(draw(1, 2, Stream::kAction, 2), draw(1, 1, Stream::kAction, 2));
  EXPECT_NE(draw(1, 1, Stream::kAction, 3), draw(1, 1, Stream::kAction, 2));
  EXPECT_NE(draw(1, 1, Stream::kEvaluation, 2), draw(1, 1, Stream::kAction, 2));
}

TEST(Distribution, TheModeIsTheMostProbableAction) {
  std::vector<std::int32_t> chosen(4);
  over(env::MultiDiscrete{.nvec = {2, 3}, .start = {}, .shape = {2}})
      .mode(std::vector<float>{1, 2, 5, 4, 3, 2, 1, 0, 1, 2}, view(chosen, 2));
  EXPECT_EQ(chosen, (std::vector<std::int32_t>{1, 0, 0, 2}));
  std::vector<float> mean(2);
  over(env::Box{{shm::DType::kF32, {2}}, {-1}, {1}}).mode(std::vector<float>{7, -7}, view(mean, 1));
  EXPECT_EQ(mean, (std::vector<float>{7, -7}));
}

}  // namespace
}  // namespace shoal::learn
