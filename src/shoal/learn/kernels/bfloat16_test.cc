// Rounding to bfloat16, and the kernels that multiply and move it, by each instruction set.
#include "shoal/learn/kernels/bfloat16.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

using Pairs = std::vector<Bfloat16Pair>;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

float first_of(Bfloat16Pair pair) { return from_bfloat16(static_cast<std::uint16_t>(pair)); }
float second_of(Bfloat16Pair pair) { return from_bfloat16(static_cast<std::uint16_t>(pair >> 16)); }

/// Numbers that are bfloat16 already, in pairs.
Pairs random_pairs(std::size_t n, unsigned seed) {
  const auto numbers = random_floats(2 * n, seed);
  Pairs pairs(n);
  for (std::size_t k = 0; k < n; ++k) pairs[k] = bfloat16_pair(numbers[2 * k], numbers[2 * k + 1]);
  return pairs;
}

TEST(Bfloat16, IsTheNearestAndOfTwoTheEvenOne) {
  const auto rounded = [](float x) { return from_bfloat16(to_bfloat16(x)); };
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(rounded(static_cast<float>(byte)), byte);
  EXPECT_EQ(rounded(257), 256);  // between 256 and 258
  EXPECT_EQ(rounded(259), 260);  // between 258 and 260
  EXPECT_EQ(rounded(std::nextafter(257.0F, 300.0F)), 258);
  EXPECT_EQ(rounded(-257), -256);
  EXPECT_EQ(rounded(1.0F / 3), 0.333984375F);
  EXPECT_TRUE(std::signbit(rounded(-0.0F)));
  EXPECT_EQ(rounded(kInfinity), kInfinity);
  EXPECT_EQ(rounded(-kLargest), -kInfinity);
  for (const std::uint32_t bits : {0x7f800001U, 0x7fffffffU, 0xffffffffU})
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(bits)))) << bits;
  EXPECT_EQ(bfloat16_pair(1.0F, -2.0F), 0xc0003f80U);
}

class Bfloat16KernelsOf : public testing::TestWithParam<std::size_t> {
 protected:
  const MlpKernels& kernels_ = mlp_kernels()[GetParam()];
};

/// An element's sum by the definition of ProductOf, and what its rounding is measured by.
struct Definition {
  double sum = 0;
  double length = 1;
};

Definition defined(const PairProduct& p, std::int64_t g, std::int64_t i, std::int64_t j) {
  Definition all;
  for (std::int64_t k = 0; k < p.segments * p.depth; ++k) {
    const Bfloat16Pair x =
        p.a[g * p.a_group + k / p.depth * p.a_segment + i * p.a_row + k % p.depth * p.a_step];
    const Bfloat16Pair y = p.b[j / kPanel * p.b_panel + k * p.b_row + j % kPanel];
    const double one = static_cast<double>(first_of(x)) * first_of(y);
    const double other = static_cast<double>(second_of(x)) * second_of(y);
    all.sum += one + other;
    all.length += std::abs(one) + std::abs(other);
  }
  return all;
}

TEST_P(Bfloat16KernelsOf, ProductsEqualTheDefinition) {
  for (const auto& [m, n, depth] : {std::array<std::int64_t, 3>{1, 16, 1},
                                    {5, 16, 4},
                                    {14, 64, 64},
                                    {37, 48, 19},
                                    {64, 80, 100}}) {
    const auto a = random_pairs(index(m * depth), 1);
    const auto b = random_pairs(index(depth * n), 2);
    const auto bias = random_floats(index(n), 3);
    const auto before = random_floats(index(m * n), 4);
    for (const bool a_transposed : {false, true}) {
      for (const bool accumulate : {false, true}) {
        std::vector<float> c = before;
        const PairProduct product{.m = m,
                                  .n = n,
                                  .depth = depth,
                                  .a = a.data(),
                                  .a_row = a_transposed ? 1 : depth,
                                  .a_step = a_transposed ? m : 1,
                                  .b = b.data(),
                                  .b_row = n,
                                  .c = c.data(),
                                  .c_row = n,
                                  .epilogue = accumulate ? Epilogue::kNone : Epilogue::kBiasRelu,
                                  .bias = bias.data(),
                                  .accumulate = accumulate};
        kernels_.pair_product(product);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            const auto [sum, length] = defined(product, 0, i, j);
            const std::size_t at = index(i * n + j);
            const double expected =
                accumulate ? sum + before[at] : std::max(sum + bias[index(j)], 0.0);
            ASSERT_NEAR(c[at], expected, 1e-6 * length)
                << i << ", " << j << " of " << m << " x " << n << " x " << depth;
          }
        }
      }
    }
  }
}

/// a times b as tiles make it (tile_products.h), of floats.
std::vector<float> by_tiles(const Pairs& a, const Pairs& b, std::int64_t rows, std::int64_t depth,
                            std::int64_t columns) {
  std::vector<float> c;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (std::int64_t tile = 0; tile < depth; tile += 16) {
        float first = 0, second = 0;
        for (std::int64_t k = tile; k < std::min(tile + 16, depth); ++k) {
          const Bfloat16Pair x = a[index(i * depth + k)], y = b[index(k * columns + j)];
          first = std::fma(first_of(x), first_of(y), first);
          second = std::fma(second_of(x), second_of(y), second);
        }
        sum += first + second;
      }
      c.push_back(sum);
    }
  }
  return c;
}

TEST_P(Bfloat16KernelsOf, SumsHaveTheBitsOfThoseMadeOfFloats) {
  // In the order that PairProduct promises; the last kernels make it of floats.
  constexpr std::int64_t kRows = 29, kDepth = 200, kColumns = 48;
  const auto a = random_pairs(kRows * kDepth, 5);
  const auto b = random_pairs(kDepth * kColumns, 6);
  const bool tiles = std::string(kernels_.name) == "amx";
  const auto run = [&](const MlpKernels& kernels, std::int64_t first, std::int64_t rows) {
    std::vector<float> c(index(rows * kColumns));
    kernels.pair_product({.m = rows,
                          .n = kColumns,
                          .depth = kDepth,
                          .a = a.data() + first * kDepth,
                          .a_row = kDepth,
                          .b = b.data(),
                          .b_row = kColumns,
                          .c = c.data(),
                          .c_row = kColumns});
    return c;
  };
  const auto all = run(kernels_, 0, kRows);
  EXPECT_EQ(all,
            tiles ? by_tiles(a, b, kRows, kDepth, kColumns) : run(mlp_kernels().back(), 0, kRows));
  for (std::int64_t i = 0; i < kRows; ++i) {
    const auto one = run(kernels_, i, 1);
    ASSERT_TRUE(std::equal(one.begin(), one.end(), all.begin() + i * kColumns)) << "row " << i;
  }
}

TEST_P(Bfloat16KernelsOf, AProductOfPartsIsOneOfTheWhole) {
  // As convolutions ask for it: segments, groups, panels, and rows or columns that lie beside each other.
  constexpr std::int64_t kSegments = 3, kGroups = 2;
  for (const auto& [m, depth, n] : {std::array<std::int64_t, 3>{20, 16, 32},
                                    {9, 64, 64},
                                    {7, 5, 96},
                                    {33, 21, 80},
                                    {16, 20, 16}}) {
    for (const bool a_transposed : {false, true}) {
      const std::int64_t pairs = m * depth;
      const auto a = random_pairs(index(kGroups * kSegments * pairs), 13);
      const auto b = random_pairs(index(kSegments * depth * panels(n) * kPanel), 14);
      const auto before = random_floats(index(kGroups * m * n), 15);
      std::vector<float> c = before;
      const PairProduct product{.m = m,
                                .n = n,
                                .depth = depth,
                                .a = a.data(),
                                .a_row = a_transposed ? 1 : depth,
                                .a_step = a_transposed ? m : 1,
                                .b = b.data(),
                                .b_row = kPanel,
                                .c = c.data(),
                                .c_row = n,
                                .segments = kSegments,
                                .a_segment = pairs,
                                .b_panel = kSegments * depth * kPanel,
                                .groups = kGroups,
                                .a_group = kSegments * pairs,
                                .c_group = m * n,
                                .accumulate = true};
      kernels_.pair_product(product);
      for (std::int64_t at = 0; at < kGroups * m * n; ++at) {
        const std::int64_t g = at / (m * n), i = at / n % m, j = at % n;
        const auto [sum, length] = defined(product, g, i, j);
        ASSERT_NEAR(c[index(at)], before[index(at)] + sum, 1e-6 * length)
            << m << " x " << n << ", " << at;
      }
    }
  }
}

TEST_P(Bfloat16KernelsOf, NumbersAreRoundedToPairsOfNeighbours) {
  std::vector<float> x = random_floats(96, 7);
  x[3] = 257;
  x[4] = std::numeric_limits<float>::quiet_NaN();
  x[5] = std::bit_cast<float>(0x7fffffffU);
  x[6] = kLargest;
  x[7] = -0.0F;
  x[8] = std::numeric_limits<float>::denorm_min();
  Pairs out(49, 77);
  kernels_.round(x.data(), 96, out.data());
  for (std::size_t k = 0; k < 48; ++k) {
    EXPECT_EQ(out[k] & 0xffffU, to_bfloat16(x[2 * k])) << k;
    EXPECT_EQ(out[k] >> 16, to_bfloat16(x[2 * k + 1])) << k;
  }
  EXPECT_EQ(out[48], 77U);
}

TEST_P(Bfloat16KernelsOf, WhereReluSaidNothingTheSlopeIsZero) {
  const std::vector<float> x = random_floats(64, 8);
  std::vector<float> activation = random_floats(64, 9);
  for (auto& a : activation) a = std::max(a, 0.0F);
  activation[1] = 1e-30F;
  Pairs said(32), out(32);
  kernels_.round(activation.data(), 64, said.data());
  kernels_.round_relu_slope(x.data(), said.data(), 64, out.data());
  for (std::size_t k = 0; k < 64; ++k) {
    const std::uint32_t ours = k % 2 == 0 ? out[k / 2] & 0xffffU : out[k / 2] >> 16;
    EXPECT_EQ(ours, activation[k] > 0 ? to_bfloat16(x[k]) : 0) << k;
  }
}

TEST_P(Bfloat16KernelsOf, RowsArePairedInTheirOrderAndALastOneWithZeros) {
  constexpr std::int64_t kWidth = 24, kStride = 30;
  const Pairs in = random_pairs(5 * kStride, 10);
  for (const std::int64_t rows : {1, 2, 5}) {
    Pairs out(6 * kWidth, 77);
    kernels_.pair_rows(in.data(), kStride, rows, kWidth, out.data());
    const auto number = [&](std::int64_t row, std::int64_t j) -> Bfloat16Pair {
      if (row >= rows) return 0;
      const Bfloat16Pair pair = in[index(row * kStride + j / 2)];
      return j % 2 == 0 ? pair & 0xffffU : pair >> 16;
    };
    const std::int64_t pairs = (rows + 1) / 2;
    for (std::int64_t r = 0; r < pairs; ++r) {
      for (std::int64_t j = 0; j < 2 * kWidth; ++j)
        ASSERT_EQ(out[index(r * 2 * kWidth + j)], number(2 * r, j) | number(2 * r + 1, j) << 16);
    }
    if (rows < 5) {
      EXPECT_EQ(out[index(pairs * 2 * kWidth)], 77U);
    }
  }
}

TEST_P(Bfloat16KernelsOf, BytesAreTakenAsTheyAre) {
  std::mt19937 random(11);
  for (const auto& [channels, stride] :
       {std::array<std::int64_t, 2>{1, 1}, {2, 2}, {3, 3}, {3, 4}, {4, 4}, {5, 6}}) {
    constexpr std::int64_t kPixels = 70;
    std::vector<std::uint8_t> one(index(channels * kPixels)), other(one.size());
    for (auto* bytes : {&one, &other})
      for (auto& b : *bytes) b = static_cast<std::uint8_t>(random());
    Pairs neighbours(index(kPixels * stride / 2)), both(index(kPixels * stride));
    kernels_.unpack_pairs(one.data(), channels, kPixels, stride, neighbours.data());
    kernels_.unpack_two(one.data(), other.data(), channels, kPixels, stride, both.data());
    for (std::int64_t p = 0; p < kPixels; ++p) {
      for (std::int64_t c = 0; c < stride; ++c) {
        const bool is_one = c < channels;
        const float x = is_one ? one[index(c * kPixels + p)] : 0;
        const float y = is_one ? other[index(c * kPixels + p)] : 0;
        const std::int64_t at = p * stride + c;
        const Bfloat16Pair pair = neighbours[index(at / 2)];
        ASSERT_EQ(at % 2 == 0 ? first_of(pair) : second_of(pair), x) << channels << " " << p;
        ASSERT_EQ(both[index(at)], bfloat16_pair(x, y)) << channels << " " << p;
      }
    }
  }
}

TEST_P(Bfloat16KernelsOf, PairsAreTransposed) {
  const Pairs in = random_pairs(23 * 40, 12);
  for (const auto& [rows, columns] : {std::array<std::int64_t, 2>{16, 32}, {23, 37}}) {
    Pairs out(37 * 24);
    kernels_.transpose_pairs(in.data(), rows, columns, 40, out.data(), 24);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j)
        ASSERT_EQ(out[index(j * 24 + i)], in[index(i * 40 + j)]) << i << ", " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Bfloat16KernelsOf,
                         testing::Range(std::size_t{0}, mlp_kernels().size()),
                         [](const auto& info) {
                           return std::string(mlp_kernels()[info.param].name);
                         });

TEST(Bfloat16Kernels, OnlyAnInstructionMakesItFaster) {
  const MlpKernels& fastest = mlp_kernels().front();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd")) {
    EXPECT_EQ(std::string(fastest.name), "avx512_bf16");
    EXPECT_TRUE(fastest.bfloat16_is_faster);
  }
#endif
  if (std::string(fastest.name) == "amx") {
    EXPECT_TRUE(fastest.bfloat16_is_faster);
  }
  for (const MlpKernels& kernels : mlp_kernels()) {
    const std::string name = kernels.name;
    EXPECT_TRUE(!kernels.bfloat16_is_faster || name == "amx" || name == "avx512_bf16") << name;
  }
}

}  // namespace
}  // namespace shoal::learn
