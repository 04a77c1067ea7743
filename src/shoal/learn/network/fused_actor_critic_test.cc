// MLPs on own kernels against the definition: the same outputs, and the same gradients to 1e-5 of their
// norm.
#include "shoal/learn/network/fused_actor_critic.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "shoal/learn/testing/gradient_difference.h"
#include "shoal/learn/testing/network_oracle.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

struct FusedCase {
  std::string name;
  std::int64_t inputs;
  std::int64_t actions;  // negative: that many dimensions of a Box
  LearnerConfig config;
};

void PrintTo(const FusedCase& c, std::ostream* out) { *out << c.name; }

env::Space actions_of(std::int64_t n) {
  if (n < 0) return env::Box{{shm::DType::kF32, {-n}}, {-1}, {1}};
  return env::Discrete{.n = n};
}

class FusedActorCriticOf : public testing::TestWithParam<std::tuple<FusedCase, std::size_t>> {
 protected:
  FusedActorCriticOf()
      : config_(std::get<0>(GetParam()).config),
        network_(Network::create(
            collect::ObservationEncoder(
                env::Box{{shm::DType::kF32, {std::get<0>(GetParam()).inputs}}, {-1}, {1}}),
            collect::ActionDecoder(actions_of(std::get<0>(GetParam()).actions)), config_,
            parameters_)) {
    network_.initialize(parameters_, config_, Philox(9));
    // Heads and biases that matter: their initial values nearly hide mistakes.
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 0.2F);
    for (std::size_t k = 0; k < parameters_.list().size(); ++k) {
      for (auto& x : parameters_.values(k)) x += normal(random);
    }
    fused_ = std::make_unique<FusedActorCritic>(network_, parameters_,
                                                mlp_kernels()[std::get<1>(GetParam())]);
    observe(200);
  }

  void observe(std::int64_t rows) {
    obs_ = random_floats(static_cast<std::size_t>(rows * network_.features.dense), 2);
    view_ = {{reinterpret_cast<std::byte*>(obs_.data()),
              rows,
              {shm::DType::kF32, {network_.features.dense}}}};
  }

  using Outputs = NetworkOracle::Outputs;
  Outputs forward() {
    const auto rows = static_cast<std::size_t>(view_[0].rows);
    Outputs out{std::vector<float>(rows * static_cast<std::size_t>(network_.head)),
                std::vector<float>(rows)};
    fused_->forward(view_, {}, out.head, out.value);
    return out;
  }
  /// All rows are computed, and some of them once more by the definition: at the ends and at 256, where
  /// a second piece begins.
  void compare_outputs() {
    const Outputs ours = forward();
    const auto width = static_cast<std::size_t>(network_.head);
    for (const std::int32_t row : {0, 1, 5, 7, 100, 255, 256, 299}) {
      if (row >= view_[0].rows) continue;
      const Outputs theirs = oracle_.forward(view_, std::array{row});
      const auto from = ours.head.begin() + static_cast<std::ptrdiff_t>(row * network_.head);
      expect_near({from, from + static_cast<std::ptrdiff_t>(width)}, theirs.head, 1e-5, "head");
      expect_near({ours.value[static_cast<std::size_t>(row)]}, theirs.value, 1e-5, "value");
    }
  }
  std::vector<float> gradient(std::span<const std::int32_t> rows) {
    Outputs out{std::vector<float>(rows.size() * static_cast<std::size_t>(network_.head)),
                std::vector<float>(rows.size())};
    fused_->forward_train(view_, Sequences(rows), out.head, out.value);
    std::vector<float> gradient(parameters_.flat().size(), NAN);
    fused_->backward(random_floats(out.head.size(), 3), random_floats(out.value.size(), 4),
                     gradient);
    return gradient;
  }
  void compare_gradients(std::span<const std::int32_t> rows) {
    const auto width = static_cast<std::size_t>(network_.head);
    expect_same_gradient(parameters_, gradient(rows),
                         oracle_.gradient(view_, rows, random_floats(rows.size() * width, 3),
                                          random_floats(rows.size(), 4)));
  }

  LearnerConfig config_;
  Parameters parameters_;
  Network network_;
  std::vector<float> obs_;
  std::vector<shm::TensorView> view_;
  std::unique_ptr<ActorCritic> fused_;
  NetworkOracle oracle_{network_, parameters_};
};

TEST_P(FusedActorCriticOf, ForwardEqualsTheDefinition) {
  for (const std::int64_t rows :
       {1, 8, 256, 300}) {  // with and without a remainder, in one piece and in two
    observe(rows);
    compare_outputs();
  }
}

TEST_P(FusedActorCriticOf, ValuesAloneAreTheSame) {
  const Outputs both = forward();
  std::vector<float> value(both.value.size());
  fused_->forward(view_, {}, {}, value);
  EXPECT_EQ(value, both.value);
}

TEST_P(FusedActorCriticOf, GradientsEqualThoseOfTheTape) {
  std::vector<std::int32_t> rows{5, 5, 199, 0};  // rows may repeat and come in any order
  compare_gradients(rows);
  rows.resize(37);
  std::iota(rows.rbegin(), rows.rend(), 3);
  compare_gradients(rows);
}

TEST_P(FusedActorCriticOf, EveryParameterIsWrittenAndNoGap) {
  const std::vector<std::int32_t> rows{1, 2, 3};
  const std::vector<float> g = gradient(rows);  // begun as NaN
  std::vector<bool> used(g.size());
  for (const auto& p : parameters_.list()) {
    for (std::size_t k = 0; k < p.numel(); ++k) used[p.offset + k] = true;
  }
  for (std::size_t k = 0; k < g.size(); ++k) ASSERT_EQ(std::isnan(g[k]), !used[k]) << k;
}

TEST_P(FusedActorCriticOf, ChangedParametersAreSeen) {
  forward();
  for (std::size_t k = 0; k < parameters_.list().size(); ++k) {
    for (auto& x : parameters_.values(k)) x *= 1.5F;
  }
  fused_->parameters_changed();
  compare_outputs();
}

const FusedCase kCases[] = {
    {"CartPole", 4, 2, {}},
    {"Relu",
     8,
     4,
     {.policy_hidden = {256, 256}, .value_hidden = {256, 256}, .activation = Activation::kRelu}},
    {"OddWidths", 17, -3, {.policy_hidden = {50, 31}, .value_hidden = {7, 33, 5}}},
    {"Shared", 6, 3, {.policy_hidden = {48, 40}, .shared_hidden = true}},
    {"SharedRelu",
     6,
     -1,
     {.policy_hidden = {20}, .shared_hidden = true, .activation = Activation::kRelu}},
    {"Linear", 3, -2, {.policy_hidden = {}, .value_hidden = {}}},
};

INSTANTIATE_TEST_SUITE_P(Networks, FusedActorCriticOf,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Range(std::size_t{0}, mlp_kernels().size())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  mlp_kernels()[std::get<1>(info.param)].name;
                         });

}  // namespace
}  // namespace shoal::learn
