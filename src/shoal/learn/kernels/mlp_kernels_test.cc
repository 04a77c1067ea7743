#include "shoal/learn/kernels/mlp_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

double finish(double sum, Epilogue epilogue, double bias, double activation) {
  switch (epilogue) {
    case Epilogue::kNone:
      return sum;
    case Epilogue::kBias:
      return sum + bias;
    case Epilogue::kBiasTanh:
      return std::tanh(sum + bias);
    case Epilogue::kBiasRelu:
      return std::max(sum + bias, 0.0);
    case Epilogue::kTimesTanhSlope:
      return sum * (1 - activation * activation);
    case Epilogue::kTimesReluSlope:
      return activation > 0 ? sum : 0.0;
  }
  return 0;
}

class MlpKernelsOf : public testing::TestWithParam<std::size_t> {
 protected:
  /// 16 times 0 + x, finished so.
  std::vector<float> finished(Epilogue epilogue, float x) const {
    const float zero = 0;
    const std::vector<float> b(16, 0.0F), bias(16, x);
    std::vector<float> out(16);
    kernels_.product({.m = 1,
                      .n = 16,
                      .depth = 1,
                      .a = &zero,
                      .a_row = 1,
                      .b = b.data(),
                      .b_row = 16,
                      .c = out.data(),
                      .c_row = 16,
                      .epilogue = epilogue,
                      .bias = bias.data()});
    return out;
  }

  const MlpKernels& kernels_ = mlp_kernels()[GetParam()];
};

TEST_P(MlpKernelsOf, ProductsEqualTheDefinition) {
  for (const auto& [m, n, depth] : {std::array<std::int64_t, 3>{1, 16, 1},
                                    {5, 16, 4},
                                    {8, 64, 64},
                                    {37, 48, 19},
                                    {64, 80, 100}}) {
    const auto a = random_floats(static_cast<std::size_t>(m * depth), 1);
    const auto b = random_floats(static_cast<std::size_t>(depth * n), 2);
    const auto bias = random_floats(static_cast<std::size_t>(n), 3);
    const auto activation = random_floats(static_cast<std::size_t>(m * n), 4);
    for (int e = 0; e <= static_cast<int>(Epilogue::kTimesReluSlope); ++e) {
      for (const bool a_transposed : {false, true}) {
        std::vector<float> c(static_cast<std::size_t>(m * n), NAN);
        const Product product{.m = m,
                              .n = n,
                              .depth = depth,
                              .a = a.data(),
                              .a_row = a_transposed ? 1 : depth,
                              .a_step = a_transposed ? m : 1,
                              .b = b.data(),
                              .b_row = n,
                              .c = c.data(),
                              .c_row = n,
                              .epilogue = static_cast<Epilogue>(e),
                              .bias = bias.data(),
                              .activation = activation.data(),
                              .activation_row = n};
        kernels_.product(product);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t k = 0; k < depth; ++k) {
              sum += static_cast<double>(
                         a[static_cast<std::size_t>(i * product.a_row + k * product.a_step)]) *
                     b[static_cast<std::size_t>(k * n + j)];
            }
            const auto at = static_cast<std::size_t>(i * n + j);
            const double expected =
                finish(sum, product.epilogue, bias[static_cast<std::size_t>(j)], activation[at]);
            ASSERT_NEAR(c[at], expected, 1e-5 * (1 + std::abs(expected)))
                << "epilogue " << e << " at " << i << ", " << j << " of " << m << " x " << n
                << " x " << depth;
          }
        }
      }
    }
  }
}

TEST_P(MlpKernelsOf, ARowsResultDoesNotDependOnTheOthers) {
  constexpr std::int64_t kRows = 29, kDepth = 33, kColumns = 48;
  const auto a = random_floats(kRows * kDepth, 5);
  const auto b = random_floats(kDepth * kColumns, 6);
  const auto bias = random_floats(kColumns, 7);
  auto run = [&](std::int64_t first, std::int64_t rows) {
    std::vector<float> c(static_cast<std::size_t>(rows * kColumns));
    kernels_.product({.m = rows,
                      .n = kColumns,
                      .depth = kDepth,
                      .a = a.data() + first * kDepth,
                      .a_row = kDepth,
                      .b = b.data(),
                      .b_row = kColumns,
                      .c = c.data(),
                      .c_row = kColumns,
                      .epilogue = Epilogue::kBiasTanh,
                      .bias = bias.data()});
    return c;
  };
  const auto all = run(0, kRows);
  for (std::int64_t i = 0; i < kRows; ++i) {
    const auto one = run(i, 1);
    ASSERT_TRUE(std::equal(one.begin(), one.end(), all.begin() + i * kColumns)) << "row " << i;
  }
}

TEST_P(MlpKernelsOf, TanhIsAccurateEverywhere) {
  double worst = 0;
  auto check = [&](float x) {
    const std::vector<float> out = finished(Epilogue::kBiasTanh, x);
    const double expected = std::tanh(static_cast<double>(x));
    ASSERT_LE(std::abs(out[3]), 1.0F) << x;
    if (x != 0) worst = std::max(worst, std::abs(out[3] - expected) / std::abs(expected));
  };
  for (int k = -120'000; k <= 120'000; ++k) check(static_cast<float>(k) * 1e-4F);
  for (const float x : {0.0F, 1e-30F, -1e-10F, 1e-5F, 50.0F, -1e30F, INFINITY, -INFINITY}) check(x);
  EXPECT_LT(worst, 5e-7);
}

TEST_P(MlpKernelsOf, WhatIsNoNumberStaysSo) {
  for (const Epilogue epilogue : {Epilogue::kBias, Epilogue::kBiasTanh, Epilogue::kBiasRelu}) {
    const std::vector<float> out = finished(epilogue, NAN);
    EXPECT_TRUE(std::ranges::all_of(out, [](float x) { return std::isnan(x); }));
  }
}

TEST_P(MlpKernelsOf, ColumnsAreSummed) {
  const auto x = random_floats(21 * 40, 8);
  std::vector<float> sums(32);
  kernels_.column_sums(x.data(), 21, 40, 32, sums.data());
  for (std::size_t j = 0; j < 32; ++j) {
    double expected = 0;
    for (std::size_t r = 0; r < 21; ++r) expected += x[r * 40 + j];
    EXPECT_NEAR(sums[j], expected, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, MlpKernelsOf,
                         testing::Range(std::size_t{0}, mlp_kernels().size()),
                         [](const auto& info) {
                           return std::string(mlp_kernels()[info.param].name);
                         });

}  // namespace
}  // namespace shoal::learn
