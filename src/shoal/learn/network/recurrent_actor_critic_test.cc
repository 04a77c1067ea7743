// LSTMs on own kernels, and the way back through time, against the definition: the same outputs, and
// the same gradients to 1e-5 of their norm.
#include "shoal/learn/network/recurrent_actor_critic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "shoal/learn/testing/gradient_difference.h"
#include "shoal/learn/testing/network_oracle.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

struct RecurrentCase {
  std::string name;
  std::int64_t inputs;
  int actions;
  Recurrence recurrence;
  LearnerConfig config;
};

void PrintTo(const RecurrentCase& c, std::ostream* out) { *out << c.name; }

class RecurrentActorCriticOf
    : public testing::TestWithParam<std::tuple<RecurrentCase, std::size_t>> {
 protected:
  RecurrentActorCriticOf()
      : network_(Network::create(
            collect::ObservationEncoder(
                env::Box{{shm::DType::kF32, {std::get<0>(GetParam()).inputs}}, {-1}, {1}}),
            collect::ActionDecoder(env::Discrete{.n = std::get<0>(GetParam()).actions}),
            std::get<0>(GetParam()).config, parameters_, std::get<0>(GetParam()).recurrence)) {
    network_.initialize(parameters_, std::get<0>(GetParam()).config, Philox(9));
    // Heads and biases that matter: their initial values nearly hide mistakes.
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 0.2F);
    for (std::size_t k = 0; k < parameters_.list().size(); ++k) {
      for (auto& x : parameters_.values(k)) x += normal(random);
    }
    model_ = std::make_unique<RecurrentActorCritic>(network_, parameters_,
                                                    mlp_kernels()[std::get<1>(GetParam())]);
    obs_ = random_floats(static_cast<std::size_t>(kRows * network_.features.dense), 2);
    view_ = {{reinterpret_cast<std::byte*>(obs_.data()),
              kRows,
              {shm::DType::kF32, {network_.features.dense}}}};
    memory_ = random_floats(4 * model_->memory_size(), 6);
  }

  using Outputs = NetworkOracle::Outputs;
  Sequences sequences() const { return {rows_, counts_, memory_}; }
  Outputs room(std::size_t rows) const {
    return {std::vector<float>(rows * static_cast<std::size_t>(network_.head)),
            std::vector<float>(rows)};
  }
  Outputs forward() {
    Outputs out = room(rows_.size());
    model_->forward_train(view_, sequences(), out.head, out.value);
    return out;
  }
  void compare_outputs() {
    const Outputs ours = forward();
    const Outputs theirs = oracle_.forward(view_, sequences());
    expect_near(ours.head, theirs.head, 1e-5, "head");
    expect_near(ours.value, theirs.value, 1e-5, "value");
  }

  static constexpr std::int64_t kRows = 40;
  Parameters parameters_;
  Network network_;
  std::vector<float> obs_;
  std::vector<shm::TensorView> view_;
  std::unique_ptr<RecurrentActorCritic> model_;
  // Four sequences, of 5, 4, 4 steps and of one.
  std::vector<std::int32_t> rows_{0, 5, 13, 9, 1, 6, 14, 2, 7, 15, 3, 8, 16, 4};
  std::vector<std::int32_t> counts_{4, 3, 3, 3, 1};
  std::vector<float> memory_;
  NetworkOracle oracle_{network_, parameters_};
};

TEST_P(RecurrentActorCriticOf, SequencesEqualTheDefinition) { compare_outputs(); }

TEST_P(RecurrentActorCriticOf, GradientsThroughTimeEqualThoseOfTheTape) {
  const Outputs out = forward();
  const auto d_head = random_floats(out.head.size(), 3);
  const auto d_value = random_floats(out.value.size(), 4);
  std::vector<float> gradient(parameters_.flat().size(), NAN);
  model_->backward(d_head, d_value, gradient);
  expect_same_gradient(parameters_, gradient,
                       oracle_.gradient(view_, sequences(), d_head, d_value));
}

TEST_P(RecurrentActorCriticOf, SingleStepsGiveTheBitsOfASequence) {
  const Outputs whole = forward();
  const std::size_t size = model_->memory_size();
  const auto width = static_cast<std::size_t>(network_.head);
  std::vector<float> memory(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(size));
  std::size_t at = 0;  // of the longest sequence, which is the first
  for (std::size_t step = 0; step < counts_.size(); ++step) {
    const std::vector<shm::TensorView> row{
        {view_[0].row_data(static_cast<std::int64_t>(step)), 1, view_[0].row}};
    Outputs out = room(1);
    std::vector<float> value_alone(1);
    std::vector<float> copy = memory;
    model_->forward(row, copy, {}, value_alone);
    model_->forward(row, memory, out.head, out.value);
    EXPECT_EQ(value_alone, out.value);
    EXPECT_EQ(out.value[0], whole.value[at]);
    EXPECT_TRUE(std::equal(out.head.begin(), out.head.end(),
                           whole.head.begin() + static_cast<std::ptrdiff_t>(at * width)));
    at += static_cast<std::size_t>(counts_[step]);
  }
}

TEST_P(RecurrentActorCriticOf, AnotherMemoryGivesAnotherAnswer) {
  const Outputs one = forward();
  std::ranges::fill(memory_, 0.0F);
  const Outputs other = forward();
  EXPECT_NE(one.head, other.head);
  EXPECT_NE(one.value, other.value);
}

TEST_P(RecurrentActorCriticOf, ChangedParametersAreSeen) {
  forward();
  for (std::size_t k = 0; k < parameters_.list().size(); ++k) {
    for (auto& x : parameters_.values(k)) x *= 1.3F;
  }
  model_->parameters_changed();
  compare_outputs();
}

const RecurrentCase kCases[] = {
    {"One", 4, 2, {.lstm_size = 16}, {}},
    {"OddWidths",
     7,
     3,
     {.lstm_size = 21},
     {.policy_hidden = {13}, .value_hidden = {5, 6}, .activation = Activation::kRelu}},
    {"Shared", 20, 3, {.lstm_size = 32, .shared = true}, {.policy_hidden = {}, .value_hidden = {}}},
    {"TorchsStart", 3, 2, {.lstm_size = 8}, {.orthogonal_init = false}},
};

INSTANTIATE_TEST_SUITE_P(Networks, RecurrentActorCriticOf,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Range(std::size_t{0}, mlp_kernels().size())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  mlp_kernels()[std::get<1>(info.param)].name;
                         });

}  // namespace
}  // namespace shoal::learn
