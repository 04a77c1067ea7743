// The arithmetic of networks: matrix products with bias, activation or its derivative applied on the
// way out. Convolutions are products, too: of rows that overlap, read where they lie.
//
// Compiled once for each instruction set of the processor family, and chosen at run time. All
// widths are padded to 16 floats with zeros, so that no loop has a tail. An element's sum runs over
// k in ascending order, whatever the number of rows: a row's result does not depend on the rows
// beside it. Instruction sets differ in bits (fused multiply-add), not in more.
//
// Products come in float32 and in bfloat16 (bfloat16.h), whose factors are rounded before and whose
// sums are float32: twice as fast on processors that are made for it. Elsewhere the same is made of
// float32, slower than float32 itself, so that what was learned on one processor acts on any.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shoal/learn/kernels/bfloat16.h"

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

/// Columns of a panel: of matrices that are read again and again a panel's rows lie one after the
/// other, so that one product walks through memory in one direction.
inline constexpr std::int64_t kPanel = 32;
constexpr std::int64_t panels(std::int64_t columns) noexcept {
  return (columns + kPanel - 1) / kPanel;
}

/// c[i][j] = epilogue(sum over k of a[i][k] * b[k][j]) for i < m, j < n, k < depth.
///
/// The second half makes more of it. In `segments` parts of a sum, each `depth` long, a lies
/// elsewhere: element (i, s, k) at a[i * a_row + s * a_segment + k * a_step], times row
/// s * depth + k of b. The whole is done for `groups` groups of m rows each.
template <class Element>
struct ProductOf {
  std::int64_t m = 0;
  std::int64_t n = 0;  // a multiple of kPad
  std::int64_t depth = 0;
  const Element* a = nullptr;  // element (i, k) at a[i * a_row + k * a_step]
  std::int64_t a_row = 0;
  std::int64_t a_step = 1;
  const Element* b = nullptr;  // row k at b + k * b_row
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  Epilogue epilogue = Epilogue::kNone;
  const float* bias = nullptr;        // [n]
  const float* activation = nullptr;  // row i at activation + i * activation_row
  std::int64_t activation_row = 0;

  std::int64_t segments = 1;
  std::int64_t a_segment = 0;
  std::int64_t b_panel = kPanel;  // from a panel of b to the next; kPanel: rows lie as a whole
  std::int64_t groups = 1;        // more than one: no epilogue that reads `activation`
  std::int64_t a_group = 0;       // from the first row of a group to that of the next
  std::int64_t c_group = 0;
  bool accumulate = false;  // the sums begin with what c holds
};

using Product = ProductOf<float>;

/// a[i][k] * b[k][j] is here of two pairs: the products of their second numbers and of their first are
/// added, in this order; "amx" has another (tile_products.h). So `depth` and distances in a count
/// pairs. A number below 2^-126, or a sum that comes there, may count as 0.
using PairProduct = ProductOf<Bfloat16Pair>;

/// A step of LSTM cells (Hochreiter and Schmidhuber, 1997), of rows beside each other; `width` is a
/// multiple of kPad.
///
///   i, f, o = sigmoid(their sums)   g = tanh(its sum)
///   cell = f * before + i * g       squashed = tanh(cell)   output = o * squashed
struct LstmStep {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  float* gates = nullptr;         // [rows][4][width]: the sums of i, f, g and o; afterwards they
  const float* before = nullptr;  // [rows][width], and so are the others
  float* cell = nullptr;
  float* squashed = nullptr;
  float* output = nullptr;
};

/// The way back through one.
struct LstmStepBack {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const float* gates = nullptr;
  const float* before = nullptr;
  const float* squashed = nullptr;
  const float* d_output = nullptr;  // the loss's derivative by `output`
  float* d_cell = nullptr;          // by `cell`, of what comes later; afterwards by `before`
  float* d_gates = nullptr;         // to be written: by the sums
};

struct MlpKernels {
  const char* name;         // "amx", "avx512_bf16", "avx512", "avx2", "generic"
  bool bfloat16_is_faster;  // pair_product, than product
  void (*product)(const Product&) noexcept;
  void (*pair_product)(const PairProduct&) noexcept;
  /// sums[j] = sum over rows of x[row * stride + j], j < n (a multiple of kPad).
  void (*column_sums)(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
                      float* sums) noexcept;
  /// out[p][c] = bytes[c][p] / 255 for p < pixels, c < channels: channels last.
  void (*unpack_image)(const std::uint8_t* bytes, std::int64_t channels, std::int64_t pixels,
                       float* out) noexcept;
  /// out[j][i] = in[i][j] for i < rows, j < columns; `in` has rows of `stride` floats, `out` of
  /// `out_stride`.
  void (*transpose)(const float* in, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                    float* out, std::int64_t out_stride) noexcept;
  void (*transpose_pairs)(const Bfloat16Pair* in, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride, Bfloat16Pair* out, std::int64_t out_stride) noexcept;
  /// n numbers (a multiple of kPad) rounded, to n / 2 pairs of neighbours.
  void (*round)(const float* x, std::int64_t n, Bfloat16Pair* out) noexcept;
  /// The same, but 0 where activation's number is not above 0: the slope of ReLU.
  void (*round_relu_slope)(const float* x, const Bfloat16Pair* activation, std::int64_t n,
                           Bfloat16Pair* out) noexcept;
  /// Makes pairs of rows from pairs of neighbours: out[r][j] has number j of row 2r, then that of row
  /// 2r + 1, where there is none 0. A row of `in` is `width` pairs, one every `stride`.
  void (*pair_rows)(const Bfloat16Pair* in, std::int64_t stride, std::int64_t rows,
                    std::int64_t width, Bfloat16Pair* out) noexcept;
  /// Number c of pixel p, which begins at every `stride` numbers, is bytes[c][p]: pairs of neighbours.
  /// Numbers of no channel are left as they are.
  void (*unpack_pairs)(const std::uint8_t* bytes, std::int64_t channels, std::int64_t pixels,
                       std::int64_t stride, Bfloat16Pair* out) noexcept;
  /// The same of two images, as pairs of first and second.
  void (*unpack_two)(const std::uint8_t* first, const std::uint8_t* second, std::int64_t channels,
                     std::int64_t pixels, std::int64_t stride, Bfloat16Pair* out) noexcept;
  /// x[i] = 0 where activation[i] is not above 0: the slope of ReLU.
  void (*relu_slope)(float* x, const float* activation, std::int64_t n) noexcept;
  /// x[i] += y[i].
  void (*add)(float* x, const float* y, std::int64_t n) noexcept;
  void (*lstm_step)(const LstmStep&) noexcept;
  void (*lstm_step_back)(const LstmStepBack&) noexcept;
};

/// Those that this processor can run, the fastest first; the last is "generic", which runs
/// everywhere.
std::span<const MlpKernels> mlp_kernels() noexcept;

}  // namespace shoal::learn
