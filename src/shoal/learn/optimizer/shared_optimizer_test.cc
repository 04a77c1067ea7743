#include "shoal/learn/optimizer/shared_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <thread>
#include <vector>

#include "shoal/learn/config/option.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/optimizer/rmsprop.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

using sync::RelaxedFloats;

/// Memory for parameters and averages, as an arena has it.
class Memory {
 public:
  explicit Memory(std::size_t size) : size_(size), words_(3 * size / RelaxedFloats::kInWord) {}

  SharedParameters view() {
    return {.parameters = part(0), .averages = {part(1), part(2)}, .steps = &steps_};
  }

 private:
  RelaxedFloats part(std::size_t which) {
    const std::size_t words = size_ / RelaxedFloats::kInWord;
    return RelaxedFloats(std::span(words_).subspan(which * words, words));
  }

  std::size_t size_;
  std::vector<RelaxedFloats::Word> words_;
  RelaxedFloats::Word steps_{0};
};

LearnerConfig with(OptimizerKind kind) {
  LearnerConfig config;
  config.optimizer = kind;
  return config;
}

class SharedOptimizerOf : public testing::TestWithParam<OptimizerKind> {};

TEST_P(SharedOptimizerOf, StepsAloneAsAnOptimiserOfItsOwnBitForBit) {
  constexpr std::size_t kSize = 208;  // the last block is a short one
  Memory memory(kSize);
  AlignedFloats ours(kSize), theirs(kSize);
  const std::vector<float> start = random_floats(kSize, 1);
  std::ranges::copy(start, theirs.data());
  const auto own = make_optimizer(with(GetParam()), kSize);
  memory.view().write(start, *own);
  SharedOptimizer first(make_optimizer(with(GetParam()), 0), memory.view());
  SharedOptimizer second(make_optimizer(with(GetParam()), 0), memory.view());
  for (std::uint64_t k = 0; k < 20; ++k) {
    const std::vector<float> gradient = random_floats(kSize, 2 + k);
    own->step(theirs.span(), gradient, 0.5, 0.01);
    (k % 3 == 0 ? second : first).step(ours.span(), gradient, 0.5, 0.01);
    ASSERT_TRUE(std::ranges::equal(ours.span(), theirs.span())) << "step " << k + 1;
  }
  AlignedFloats read(kSize);
  const auto averages = make_optimizer(with(GetParam()), kSize);
  memory.view().read(read.span(), *averages);
  EXPECT_TRUE(std::ranges::equal(read.span(), theirs.span()));
  EXPECT_EQ(averages->steps(), 20);
  for (std::size_t k = 0; k < own->averages().size(); ++k)
    EXPECT_TRUE(std::ranges::equal(averages->averages()[k].values, own->averages()[k].values));
}

// A run under ThreadSanitizer is what this is for, too.
TEST_P(SharedOptimizerOf, ManyStepAtOnceAndEveryFloatStaysWhole) {
  constexpr std::size_t kSize = 1024;
  Memory memory(kSize);
  const auto start = make_optimizer(with(GetParam()), kSize);
  memory.view().write(std::vector<float>(kSize, 1.0F), *start);
  constexpr int kSteps = 2000;
  {
    std::vector<std::jthread> actors;
    for (std::uint64_t actor = 0; actor < 3; ++actor) {
      actors.emplace_back([&memory, actor] {
        SharedOptimizer optimizer(make_optimizer(with(GetParam()), 0), memory.view());
        AlignedFloats parameters(kSize);
        const std::vector<float> gradient = random_floats(kSize, actor);
        for (int k = 0; k < kSteps; ++k) optimizer.step(parameters.span(), gradient, 1.0, 1e-4);
      });
    }
  }
  std::vector<float> parameters(kSize);
  const auto averages = make_optimizer(with(GetParam()), kSize);
  memory.view().read(parameters, *averages);
  EXPECT_EQ(averages->steps(), 3 * kSteps);
  for (const float p : parameters) {
    ASSERT_TRUE(std::isfinite(p));
    ASSERT_LT(std::abs(p - 1), 1.0F) << "more than all steps together";
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, SharedOptimizerOf,
                         testing::Values(OptimizerKind::kAdam, OptimizerKind::kRmsProp,
                                         OptimizerKind::kRmsPropTf),
                         [](const auto& info) -> std::string {
                           return value_names(info.param)[static_cast<std::size_t>(info.param)];
                         });

// With alpha 1 and gradients of 1 a step takes exactly 1 away from each parameter, so that what is
// missing at the end are the steps that were lost.
TEST(SharedOptimizer, LosesNoMoreThanStepsThatMet) {
  constexpr std::size_t kSize = 9'344;
  constexpr int kSteps = 500;
  Memory memory(kSize);
  const RmsPropOptions exact{.alpha = 1, .eps = 0, .tensorflow = true};
  {
    RmsProp start(kSize, exact);
    memory.view().write(std::vector<float>(kSize, 0.0F), start);
    std::vector<std::jthread> actors;
    for (int actor = 0; actor < 2; ++actor) {
      actors.emplace_back([&memory, &exact] {
        SharedOptimizer optimizer(std::make_unique<RmsProp>(0, exact), memory.view());
        AlignedFloats parameters(kSize);
        const std::vector<float> gradient(kSize, 1.0F);
        for (int k = 0; k < kSteps; ++k) optimizer.step(parameters.span(), gradient, 1.0, 1.0);
      });
    }
  }
  std::vector<float> parameters(kSize);
  RmsProp averages(kSize, exact);
  memory.view().read(parameters, averages);
  EXPECT_EQ(averages.steps(), 2 * kSteps);
  for (const float p : parameters) {
    ASSERT_EQ(p, std::round(p));
    ASSERT_LE(p, -1.0F);
    ASSERT_GE(p, -2.0F * kSteps);
  }
}

}  // namespace
}  // namespace shoal::learn
