// The arithmetic of small MLPs: matrix products with bias, activation or its derivative applied on
// the way out.
//
// Compiled once for each instruction set of the processor family, and chosen at run time. All
// widths are padded to 16 floats with zeros, so that no loop has a tail. An element's sum runs over
// k in ascending order, whatever the number of rows: a row's result does not depend on the rows
// beside it. Instruction sets differ in bits (fused multiply-add), not in more.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace shoal::learn {

inline constexpr std::int64_t kPad = 16;
constexpr std::int64_t padded(std::int64_t n) noexcept { return (n + kPad - 1) / kPad * kPad; }

/// What becomes of a product's element before it is stored.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,            // + bias
  kBiasTanh,        // tanh(+ bias)
  kBiasRelu,        // max(+ bias, 0)
  kTimesTanhSlope,  // * (1 - activation^2)
  kTimesReluSlope,  // * (activation > 0)
};

/// c[i][j] = epilogue(sum over k of a[i][k] * b[k][j]) for i < m, j < n, k < depth.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;  // a multiple of kPad
  std::int64_t depth = 0;
  const float* a = nullptr;  // element (i, k) at a[i * a_row + k * a_step]
  std::int64_t a_row = 0;
  std::int64_t a_step = 1;
  const float* b = nullptr;  // row k at b + k * b_row
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  Epilogue epilogue = Epilogue::kNone;
  const float* bias = nullptr;        // [n]
  const float* activation = nullptr;  // row i at activation + i * activation_row
  std::int64_t activation_row = 0;
};

struct MlpKernels {
  const char* name;  // "avx512", "avx2", "generic"
  void (*product)(const Product&) noexcept;
  /// sums[j] = sum over rows of x[row * stride + j], j < n (a multiple of kPad).
  void (*column_sums)(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
                      float* sums) noexcept;
};

/// Those that this processor can run, the fastest first; the last is "generic", which runs
/// everywhere.
std::span<const MlpKernels> mlp_kernels() noexcept;

}  // namespace shoal::learn
