#include "shoal/learn/network/mlp_chain.h"

#include <gtest/gtest.h>

#include <random>

#include "shoal/learn/network/mlp_layers.h"
#include "shoal/learn/testing/double_networks.h"

namespace shoal::learn {
namespace {

Values values_of(const Parameters& parameters, std::span<const float> flat) {
  Values values;
  for (const Parameter& p : parameters.list()) {
    const auto part = flat.subspan(p.offset, p.numel());
    values[p.name].assign(part.begin(), part.end());
  }
  return values;
}

class MlpChainOf : public testing::TestWithParam<Activation> {
 protected:
  /// Widths around what a vector register holds.
  void compare(std::int64_t in, const std::vector<int>& hidden, std::int64_t out,
               std::int64_t rows) {
    Parameters parameters;
    const Mlp mlp = add_mlp(parameters, "net", in, hidden, out, 1.0);
    parameters.build();
    for (const Layer& layer : mlp) initialize_layer(layer, parameters, false, Philox(3));
    MlpChain chain(mlp, GetParam(), parameters);
    std::mt19937 dice(1);
    std::normal_distribution<float> normal;
    AlignedFloats x(static_cast<std::size_t>(rows * padded(in)));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < in; ++i) x.data()[r * padded(in) + i] = normal(dice);
    std::vector<double> by_output;  // the loss is their sum times the outputs
    for (std::int64_t k = 0; k < rows * out; ++k) by_output.push_back(normal(dice));

    const FloatRows input{x.data(), padded(in)};
    const auto row = [&](std::int64_t r) {
      return std::vector<double>(input.row(r), input.row(r) + in);
    };
    const auto loss = [&](const Values& values) {
      double sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto y = forward(values, "net", row(r), GetParam());
        for (std::int64_t o = 0; o < out; ++o)
          sum += by_output[static_cast<std::size_t>(r * out + o)] * y[static_cast<std::size_t>(o)];
      }
      return sum;
    };
    const Values values = values_of(parameters, parameters.flat());
    const FloatRows output = chain.forward(input, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto wanted = forward(values, "net", row(r), GetParam());
      for (std::int64_t o = 0; o < out; ++o) {
        EXPECT_NEAR(output.row(r)[o], wanted[static_cast<std::size_t>(o)], 1e-5);
        chain.delta()[r * chain.delta_stride() + o] =
            static_cast<float>(by_output[static_cast<std::size_t>(r * out + o)]);
      }
    }
    AlignedFloats gradient(parameters.flat().size());
    chain.backward(input, rows, gradient.span());
    EXPECT_LT(greatest_difference(values_of(parameters, gradient.span()),
                                  differences(values, "net", loss)),
              2e-5);
    AlignedFloats by_input(static_cast<std::size_t>(rows * padded(in)));
    chain.backward_input(rows, by_input.data());
    for (std::int64_t i = 0; i < in; ++i) {
      constexpr double kStep = 1e-6;
      auto above = row(0), below = row(0);
      above[static_cast<std::size_t>(i)] += kStep;
      below[static_cast<std::size_t>(i)] -= kStep;
      const auto y = forward(values, "net", above, GetParam());
      const auto z = forward(values, "net", below, GetParam());
      double wanted = 0;
      for (std::size_t o = 0; o < y.size(); ++o)
        wanted += by_output[o] * (y[o] - z[o]) / (2 * kStep);
      EXPECT_NEAR(by_input.data()[i], wanted, 1e-4);
    }
  }
};

TEST_P(MlpChainOf, ValuesAndDerivativesAreThoseOfDoublePrecision) {
  compare(3, {5}, 2, 4);
  compare(16, {16, 32}, 1, 7);
  compare(17, {33, 15}, 18, 3);
  compare(4, {}, 3, 5);
}

INSTANTIATE_TEST_SUITE_P(Activations, MlpChainOf,
                         testing::Values(Activation::kTanh, Activation::kRelu));

TEST(MlpChain, ARowsResultDoesNotDependOnTheRowsBesideIt) {
  Parameters parameters;
  const std::vector<int> hidden = {24, 24};
  const Mlp mlp = add_mlp(parameters, "net", 6, hidden, 3, 1.0);
  parameters.build();
  for (const Layer& layer : mlp) initialize_layer(layer, parameters, true, Philox(3));
  MlpChain chain(mlp, Activation::kRelu, parameters);
  std::vector<float> x;
  for (int i = 0; i < 37 * 6; ++i) x.push_back(static_cast<float>(i % 13) - 6.0F);
  const FloatRows all = chain.forward({x.data(), 6}, 37);
  const std::vector<float> last(all.row(36), all.row(36) + 3);
  const FloatRows one = chain.forward({x.data() + 36 * 6, 6}, 1);
  EXPECT_EQ(std::vector<float>(one.row(0), one.row(0) + 3), last);
}

}  // namespace
}  // namespace shoal::learn
