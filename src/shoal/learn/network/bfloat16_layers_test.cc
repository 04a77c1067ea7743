// Layers in bfloat16 against their definition in double precision, of numbers that are bfloat16 already.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "shoal/learn/network/bfloat16_linear.h"
#include "shoal/learn/network/convolution.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

using Floats = std::vector<float>;

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

Floats rounded(Floats x) {
  for (auto& number : x) number = from_bfloat16(to_bfloat16(number));
  return x;
}

Floats random_bfloat16(std::int64_t n, unsigned seed) {
  return rounded(random_floats(index(n), seed));
}

/// Pairs of neighbours.
std::vector<Bfloat16Pair> neighbours(const Floats& x) {
  std::vector<Bfloat16Pair> pairs(x.size() / 2);
  for (std::size_t k = 0; k < pairs.size(); ++k) pairs[k] = bfloat16_pair(x[2 * k], x[2 * k + 1]);
  return pairs;
}

/// Pairs of both.
std::vector<Bfloat16Pair> paired(const Floats& x, const Floats& y) {
  std::vector<Bfloat16Pair> pairs(x.size());
  for (std::size_t k = 0; k < pairs.size(); ++k) pairs[k] = bfloat16_pair(x[k], y[k]);
  return pairs;
}

struct ConvolutionCase {
  std::string name;
  std::int64_t channels, padded_channels, out, kernel, stride, height, width;
};

const ConvolutionCase kConvolutions[] = {
    {"AtariFirst", 4, 4, 32, 8, 4, 84, 84}, {"Second", 32, 32, 64, 4, 2, 20, 20},
    {"Third", 64, 64, 64, 3, 1, 9, 9},      {"OneChannel", 1, 1, 32, 8, 4, 36, 38},
    {"OddLines", 3, 4, 32, 8, 4, 36, 41},   {"FewOutputs", 16, 16, 24, 3, 2, 12, 15},
    {"FewLines", 16, 16, 24, 6, 1, 7, 8},   {"Apart", 16, 16, 24, 2, 3, 11, 13},
};

std::vector<ConvolutionCase> behind_another() {
  std::vector<ConvolutionCase> cases;
  std::ranges::copy_if(kConvolutions, std::back_inserter(cases), [](const ConvolutionCase& layer) {
    return layer.padded_channels % kPad == 0;
  });
  return cases;
}

/// One convolution of images in memory's order, with random weights.
class Bfloat16ConvolutionOf
    : public testing::TestWithParam<std::tuple<ConvolutionCase, std::size_t>> {
 protected:
  // Of the weight in torch's order, and places in images and outputs.
  std::size_t weight_at(std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) const {
    return index(((o * case_.channels + c) * case_.kernel + y) * case_.kernel + x);
  }
  std::size_t in_at(std::int64_t y, std::int64_t x, std::int64_t c) const {
    return index((y * case_.width + x) * case_.padded_channels + c);
  }
  std::size_t out_at(std::int64_t y, std::int64_t x, std::int64_t o) const {
    return index((y * convolution_.out().width + x) * convolution_.out().channels + o);
  }
  /// Calls visit(o, c, ky, kx, y, x) for each weight and output.
  template <class Visit>
  void for_each_product(Visit&& visit) const {
    for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t ky, std::int64_t kx) {
      for (std::int64_t y = 0; y < convolution_.out().height; ++y)
        for (std::int64_t x = 0; x < convolution_.out().width; ++x) visit(o, c, ky, kx, y, x);
    });
  }
  /// As a layer's outputs: nothing where there is no channel.
  Floats random_delta(unsigned seed) const {
    Floats delta = random_bfloat16(convolution_.out().size(), seed);
    for (std::size_t k = 0; k < delta.size(); ++k)
      if (static_cast<std::int64_t>(k) % convolution_.out().channels >= case_.out) delta[k] = 0;
    return delta;
  }

  const ConvolutionCase& case_ = std::get<0>(GetParam());
  const MlpKernels& kernels_ = mlp_kernels()[std::get<1>(GetParam())];
  const Layer layer_{
      .in = case_.channels, .out = case_.out, .kernel = case_.kernel, .stride = case_.stride};
  const ImageShape shape_{case_.padded_channels, case_.height, case_.width};
  Bfloat16Convolution convolution_{layer_, shape_, kernels_};
  const Floats weight_ =
      random_bfloat16(case_.out * case_.channels * case_.kernel * case_.kernel, 1);
  const Floats bias_ = random_floats(index(case_.out), 2);
  const Floats in_ = random_bfloat16(shape_.size(), 3);
  const Floats other_in_ = random_bfloat16(shape_.size(), 4);
};

TEST_P(Bfloat16ConvolutionOf, OutputsEqualTheDefinition) {
  convolution_.pack_forward(weight_, bias_);
  Floats out(index(convolution_.out().size()), NAN);
  convolution_.forward(neighbours(in_).data(), out.data());
  std::vector<double> sums(out.size());
  for_each_product([&](auto o, auto c, auto ky, auto kx, auto y, auto x) {
    sums[out_at(y, x, o)] += static_cast<double>(weight_[weight_at(o, c, ky, kx)]) *
                             in_[in_at(y * case_.stride + ky, x * case_.stride + kx, c)];
  });
  for (std::size_t k = 0; k < sums.size(); ++k) {
    const std::size_t o = k % index(convolution_.out().channels);
    const double bias = o < bias_.size() ? bias_[o] : 0;
    ASSERT_NEAR(out[k], std::max(sums[k] + bias, 0.0), 1e-4) << k;
  }
}

TEST_P(Bfloat16ConvolutionOf, TheWeightsGradientIsTheSumOfBothImages) {
  const Floats delta = random_delta(5), other_delta = random_delta(6);
  Floats gradient(index(convolution_.gradient_size()));
  for (int time = 0; time < 2; ++time)  // it is added
    convolution_.add_gradient(paired(in_, other_in_).data(), paired(delta, other_delta).data(),
                              gradient.data());
  Floats d_weight(weight_.size(), NAN), d_bias(bias_.size(), NAN);
  convolution_.unpack_gradient(gradient.data(), d_weight, d_bias);
  std::vector<double> sums(weight_.size()), bias_sums(bias_.size());
  for_each_product([&](auto o, auto c, auto ky, auto kx, auto y, auto x) {
    const std::size_t from = in_at(y * case_.stride + ky, x * case_.stride + kx, c);
    const std::size_t to = out_at(y, x, o);
    sums[weight_at(o, c, ky, kx)] += 2 * (static_cast<double>(in_[from]) * delta[to] +
                                          static_cast<double>(other_in_[from]) * other_delta[to]);
    if (c == 0 && ky == 0 && kx == 0)
      bias_sums[index(o)] += 2 * (static_cast<double>(delta[to]) + other_delta[to]);
  });
  for (std::size_t k = 0; k < sums.size(); ++k) ASSERT_NEAR(d_weight[k], sums[k], 2e-3) << k;
  for (std::size_t k = 0; k < bias_sums.size(); ++k) ASSERT_NEAR(d_bias[k], bias_sums[k], 1e-3);
}

/// A first layer's input needs no gradient.
class Bfloat16ConvolutionBehindAnother : public Bfloat16ConvolutionOf {};

TEST_P(Bfloat16ConvolutionBehindAnother, TheInputsGradientEqualsTheDefinition) {
  const Floats delta = random_delta(7);
  convolution_.pack_backward(weight_);
  Floats d_in(in_.size(), NAN);
  AlignedPairs bordered(index(convolution_.bordered_size()));
  for (int time = 0; time < 2; ++time)  // it is overwritten
    convolution_.input_gradient(neighbours(delta).data(), bordered.data(), d_in.data());
  std::vector<double> sums(in_.size());
  for_each_product([&](auto o, auto c, auto ky, auto kx, auto y, auto x) {
    sums[in_at(y * case_.stride + ky, x * case_.stride + kx, c)] +=
        static_cast<double>(weight_[weight_at(o, c, ky, kx)]) * delta[out_at(y, x, o)];
  });
  for (std::size_t k = 0; k < sums.size(); ++k) ASSERT_NEAR(d_in[k], sums[k], 1e-4) << k;
}

TEST_P(Bfloat16ConvolutionOf, AScaleIsOfWeightsAndOfTheirGradient) {
  Bfloat16Convolution scaled(layer_, shape_, kernels_, 0.25F);
  scaled.pack_forward(weight_, Floats(bias_.size()));
  convolution_.pack_forward(weight_, Floats(bias_.size()));
  Floats ours(index(scaled.out().size())), whole(ours.size());
  scaled.forward(neighbours(in_).data(), ours.data());
  convolution_.forward(neighbours(in_).data(), whole.data());
  for (std::size_t k = 0; k < ours.size(); ++k) ASSERT_EQ(ours[k], whole[k] / 4);
  const Floats gradient = random_floats(index(scaled.gradient_size()), 8);
  Floats d_scaled(weight_.size()), d_weight(weight_.size()), d_bias(bias_.size());
  scaled.unpack_gradient(gradient.data(), d_scaled, d_bias);
  convolution_.unpack_gradient(gradient.data(), d_weight, d_bias);
  for (std::size_t k = 0; k < d_weight.size(); ++k) ASSERT_EQ(d_scaled[k], d_weight[k] / 4);
}

std::string name_of(const testing::TestParamInfo<Bfloat16ConvolutionOf::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + mlp_kernels()[std::get<1>(info.param)].name;
}

INSTANTIATE_TEST_SUITE_P(Layers, Bfloat16ConvolutionOf,
                         testing::Combine(testing::ValuesIn(kConvolutions),
                                          testing::Range(std::size_t{0}, mlp_kernels().size())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Layers, Bfloat16ConvolutionBehindAnother,
                         testing::Combine(testing::ValuesIn(behind_another()),
                                          testing::Range(std::size_t{0}, mlp_kernels().size())),
                         name_of);

class Bfloat16LinearOf : public testing::TestWithParam<std::size_t> {
 protected:
  const MlpKernels& kernels_ = mlp_kernels()[GetParam()];
};

TEST_P(Bfloat16LinearOf, OutputsAndGradientsEqualTheDefinition) {
  const Layer layer{.in = 112, .out = 80};  // last panels of half the width
  const Floats weight = random_bfloat16(layer.in * layer.out, 1);
  const Floats bias = random_floats(index(layer.out), 2);
  for (const std::int64_t rows : {1, 2, 7, 150}) {
    ThreadTeam team(2);
    Bfloat16Linear linear(layer, kernels_, team);
    linear.pack(weight, bias);
    const Floats x = random_bfloat16(rows * layer.in, 3);
    const Floats delta = random_bfloat16(rows * layer.out, 4);
    const auto pairs = neighbours(x);
    constexpr std::int64_t kStride = 90;
    Floats out(index(rows * kStride), 77.0F);
    linear.forward(pairs.data(), rows, out.data(), kStride);
    Floats d_weight(weight.size(), NAN), d_bias(bias.size(), NAN), d_x(x.size(), NAN);
    linear.backward(pairs.data(), rows, delta.data(), d_weight, d_bias, d_x.data());
    std::vector<double> of_weight(weight.size()), of_bias(bias.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<double> of_x(index(layer.in));
      for (std::int64_t o = 0; o < layer.out; ++o) {
        const double d = delta[index(r * layer.out + o)];
        double sum = bias[index(o)];
        of_bias[index(o)] += d;
        for (std::int64_t i = 0; i < layer.in; ++i) {
          const double from = x[index(r * layer.in + i)];
          const double w = weight[index(o * layer.in + i)];
          sum += from * w;
          of_weight[index(o * layer.in + i)] += d * from;
          of_x[index(i)] += d * w;
        }
        ASSERT_NEAR(out[index(r * kStride + o)], std::max(sum, 0.0), 1e-4) << rows << " rows";
      }
      EXPECT_EQ(out[index(r * kStride + layer.out)], 77.0F);
      for (std::int64_t i = 0; i < layer.in; ++i)
        ASSERT_NEAR(d_x[index(r * layer.in + i)], of_x[index(i)], 1e-4) << rows << " rows";
    }
    for (std::size_t k = 0; k < weight.size(); ++k) ASSERT_NEAR(d_weight[k], of_weight[k], 1e-4);
    for (std::size_t k = 0; k < bias.size(); ++k) ASSERT_NEAR(d_bias[k], of_bias[k], 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Bfloat16LinearOf,
                         testing::Range(std::size_t{0}, mlp_kernels().size()),
                         [](const auto& info) {
                           return std::string(mlp_kernels()[info.param].name);
                         });

}  // namespace
}  // namespace shoal::learn
