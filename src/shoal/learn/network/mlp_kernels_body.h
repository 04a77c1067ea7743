// The kernels themselves, for one instruction set. Included by one source file for each, which
// defines
//
//   SHOAL_KERNELS                         the namespace
//   SHOAL_VECTOR_FLOATS                   floats in a vector register
//   SHOAL_TILE_ROWS, SHOAL_TILE_VECTORS   accumulators of the inner loop: rows times registers
//
// Nothing from the standard library is used in here but types: an inline function compiled for
// AVX-512 could become the one copy that the whole program uses, on every processor.
#include <cstdint>

#include "shoal/learn/network/mlp_kernels.h"

namespace shoal::learn::SHOAL_KERNELS {
namespace {

constexpr std::int64_t kWidth = SHOAL_VECTOR_FLOATS;
typedef float Vec __attribute__((vector_size(SHOAL_VECTOR_FLOATS * 4), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
inline Vec fill(float x) { return x - Vec{}; }

// A rational function of degrees 11 and 6, fitted to tanh on [-8.7, 8.7] for the least relative
// error (4e-8 before rounding).
inline Vec tanh(Vec x) {
  const Vec limit = fill(8.7F);
  x = x > limit ? limit : x;
  x = x < -limit ? -limit : x;
  const Vec s = x * x;
  Vec p = fill(1.969995500e-11F);
  p = p * s - 1.333766315e-08F;
  p = p * s + 9.451244637e-06F;
  p = p * s + 2.940755600e-03F;
  p = p * s + 1.293777726e-01F;
  p = p * s + 9.999999572e-01F;
  Vec q = fill(2.308725107e-04F);
  q = q * s + 2.384486717e-02F;
  q = q * s + 4.627107373e-01F;
  q = q * s + 1.0F;
  const Vec y = x * p / q;
  const Vec one = fill(1.0F);
  const Vec capped = y > one ? one : y;
  return capped < -one ? -one : capped;
}

template <Epilogue kEpilogue>
inline Vec finish(Vec sum, const Product& p, std::int64_t i, std::int64_t j) {
  if constexpr (kEpilogue == Epilogue::kNone) return sum;
  if constexpr (kEpilogue == Epilogue::kBias) return sum + load(p.bias + j);
  if constexpr (kEpilogue == Epilogue::kBiasTanh) return tanh(sum + load(p.bias + j));
  if constexpr (kEpilogue == Epilogue::kBiasRelu) {
    const Vec z = sum + load(p.bias + j);
    return z > 0.0F ? z : Vec{};
  }
  if constexpr (kEpilogue == Epilogue::kTimesTanhSlope) {
    const Vec a = load(p.activation + i * p.activation_row + j);
    return sum * (1.0F - a * a);
  }
  if constexpr (kEpilogue == Epilogue::kTimesReluSlope) {
    const Vec a = load(p.activation + i * p.activation_row + j);
    return a > 0.0F ? sum : Vec{};
  }
}

// Rows [i, i + kRows) and kVectors vectors of columns from j on, in registers over the whole depth.
template <int kRows, int kVectors, Epilogue kEpilogue>
inline void tile(const Product& p, std::int64_t i, std::int64_t j) {
  Vec sum[kRows][kVectors] = {};
  const float* a = p.a + i * p.a_row;
  const float* b = p.b + j;
  for (std::int64_t k = 0; k < p.depth; ++k, a += p.a_step, b += p.b_row) {
    Vec row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x = fill(a[r * p.a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] += x * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t column = j + v * kWidth;
      store(p.c + (i + r) * p.c_row + column, finish<kEpilogue>(sum[r][v], p, i + r, column));
    }
  }
}

template <int kVectors, Epilogue kEpilogue>
inline void column_block(const Product& p, std::int64_t j) {
  std::int64_t i = 0;
  for (; i + SHOAL_TILE_ROWS <= p.m; i += SHOAL_TILE_ROWS)
    tile<SHOAL_TILE_ROWS, kVectors, kEpilogue>(p, i, j);
  for (; i + 2 <= p.m; i += 2) tile<2, kVectors, kEpilogue>(p, i, j);
  for (; i < p.m; ++i) tile<1, kVectors, kEpilogue>(p, i, j);
}

template <Epilogue kEpilogue>
void product_with(const Product& p) {
  std::int64_t j = 0;
  for (; j + SHOAL_TILE_VECTORS * kWidth <= p.n; j += SHOAL_TILE_VECTORS * kWidth) {
    column_block<SHOAL_TILE_VECTORS, kEpilogue>(p, j);
  }
  for (; j < p.n; j += kWidth) column_block<1, kEpilogue>(p, j);
}

void product(const Product& p) noexcept {
  switch (p.epilogue) {
    case Epilogue::kNone:
      return product_with<Epilogue::kNone>(p);
    case Epilogue::kBias:
      return product_with<Epilogue::kBias>(p);
    case Epilogue::kBiasTanh:
      return product_with<Epilogue::kBiasTanh>(p);
    case Epilogue::kBiasRelu:
      return product_with<Epilogue::kBiasRelu>(p);
    case Epilogue::kTimesTanhSlope:
      return product_with<Epilogue::kTimesTanhSlope>(p);
    case Epilogue::kTimesReluSlope:
      return product_with<Epilogue::kTimesReluSlope>(p);
  }
}

void column_sums(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
                 float* sums) noexcept {
  for (std::int64_t j = 0; j < n; j += kWidth) {
    Vec sum = {};
    for (std::int64_t r = 0; r < rows; ++r) sum += load(x + r * stride + j);
    store(sums + j, sum);
  }
}

}  // namespace

extern const MlpKernels kKernels;
const MlpKernels kKernels{SHOAL_KERNELS_NAME, product, column_sums};

}  // namespace shoal::learn::SHOAL_KERNELS
