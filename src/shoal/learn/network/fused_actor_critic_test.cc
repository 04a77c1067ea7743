// The own kernels against LibTorch: the same outputs, and the same gradients to 1e-5 of their norm.
#include "shoal/learn/network/fused_actor_critic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "shoal/learn/network/adam.h"
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
    autograd_ = make_autograd_actor_critic(network_, parameters_);
    observe(200);
  }

  void observe(std::int64_t rows) {
    obs_ = random_floats(static_cast<std::size_t>(rows * network_.dense), 2);
    view_ = {
        {reinterpret_cast<std::byte*>(obs_.data()), rows, {shm::DType::kF32, {network_.dense}}}};
  }

  struct Outputs {
    std::vector<float> head, value;
  };
  Outputs forward(ActorCritic& model) {
    const auto rows = static_cast<std::size_t>(view_[0].rows);
    Outputs out{std::vector<float>(rows * static_cast<std::size_t>(network_.head)),
                std::vector<float>(rows)};
    model.forward(view_, out.head, out.value);
    return out;
  }
  std::vector<float> gradient(ActorCritic& model, std::span<const std::int32_t> rows) {
    Outputs out{std::vector<float>(rows.size() * static_cast<std::size_t>(network_.head)),
                std::vector<float>(rows.size())};
    model.forward_train(view_, rows, out.head, out.value);
    const auto d_head = random_floats(out.head.size(), 3);
    const auto d_value = random_floats(out.value.size(), 4);
    std::vector<float> gradient(parameters_.flat().size(), NAN);
    model.backward(d_head, d_value, gradient);
    return gradient;
  }

  LearnerConfig config_;
  Parameters parameters_;
  Network network_;
  std::vector<float> obs_;
  std::vector<shm::TensorView> view_;
  std::unique_ptr<ActorCritic> fused_;
  std::unique_ptr<ActorCritic> autograd_;
};

// Relative to the norm of each parameter's gradient, so that small ones count as much as large
// ones.
void expect_same_gradient(const Parameters& parameters, const std::vector<float>& ours,
                          const std::vector<float>& theirs) {
  for (const auto& p : parameters.list()) {
    const auto a = std::span(ours).subspan(p.offset, p.numel());
    const auto b = std::span(theirs).subspan(p.offset, p.numel());
    std::vector<float> difference(p.numel());
    for (std::size_t k = 0; k < p.numel(); ++k) difference[k] = a[k] - b[k];
    EXPECT_LE(norm(difference), 1e-5 * norm(b)) << p.name;
  }
}

TEST_P(FusedActorCriticOf, ForwardEqualsLibTorch) {
  for (const std::int64_t rows :
       {1, 8, 256, 300}) {  // with and without a remainder, in one piece and in two
    observe(rows);
    const Outputs ours = forward(*fused_);
    const Outputs theirs = forward(*autograd_);
    expect_near(ours.head, theirs.head, 1e-5);
    expect_near(ours.value, theirs.value, 1e-5);
  }
}

TEST_P(FusedActorCriticOf, ValuesAloneAreTheSame) {
  const Outputs both = forward(*fused_);
  std::vector<float> value(both.value.size());
  fused_->forward(view_, {}, value);
  EXPECT_EQ(value, both.value);
}

TEST_P(FusedActorCriticOf, GradientsEqualAutograd) {
  std::vector<std::int32_t> rows{5, 5, 199, 0};  // rows may repeat and come in any order
  expect_same_gradient(parameters_, gradient(*fused_, rows), gradient(*autograd_, rows));
  rows.resize(173);
  std::iota(rows.rbegin(), rows.rend(), 3);
  expect_same_gradient(parameters_, gradient(*fused_, rows), gradient(*autograd_, rows));
}

TEST_P(FusedActorCriticOf, EveryParameterIsWrittenAndNoGap) {
  const std::vector<std::int32_t> rows{1, 2, 3};
  const std::vector<float> g = gradient(*fused_, rows);  // begun as NaN
  std::vector<bool> used(g.size());
  for (const auto& p : parameters_.list()) {
    for (std::size_t k = 0; k < p.numel(); ++k) used[p.offset + k] = true;
  }
  for (std::size_t k = 0; k < g.size(); ++k) ASSERT_EQ(std::isnan(g[k]), !used[k]) << k;
}

TEST_P(FusedActorCriticOf, ChangedParametersAreSeen) {
  forward(*fused_);
  for (std::size_t k = 0; k < parameters_.list().size(); ++k) {
    for (auto& x : parameters_.values(k)) x *= 1.5F;
  }
  fused_->parameters_changed();
  const Outputs ours = forward(*fused_);
  const Outputs theirs = forward(*autograd_);
  expect_near(ours.head, theirs.head, 1e-5);
  expect_near(ours.value, theirs.value, 1e-5);
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

TEST(FusedActorCritic, DoesNotCoverImages) {
  Parameters parameters;
  const Network network = Network::create(
      collect::ObservationEncoder(env::Space{env::Box{{shm::DType::kU8, {4, 84, 84}}, {0}, {255}}}),
      collect::ActionDecoder(env::Space{env::Discrete{.n = 4}}), {}, parameters);
  EXPECT_EQ(make_fused_actor_critic(network, parameters), nullptr);
}

}  // namespace
}  // namespace shoal::learn
