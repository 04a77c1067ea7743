// The kernels themselves, for one instruction set. Included by one source file for each, which
// defines
//
//   SHOAL_KERNELS                         the namespace
//   SHOAL_VECTOR_FLOATS                   floats in a vector register
//   SHOAL_TILE_ROWS, SHOAL_TILE_VECTORS   accumulators of the inner loop: rows, at most, times
//                                         registers
//   SHOAL_MULTIPLIES_BFLOAT16             where an instruction multiplies pairs of bfloat16
//   SHOAL_MULTIPLIES_TILES                where one multiplies whole tiles of them (tile_products.h)
//
// Nothing from the standard library is used in here but types: an inline function compiled for
// AVX-512 could become the one copy that the whole program uses, on every processor.
#include <cstdint>

#include "shoal/learn/kernels/mlp_kernels.h"
#ifdef SHOAL_MULTIPLIES_BFLOAT16
#include <immintrin.h>
#endif

namespace shoal::learn::SHOAL_KERNELS {
namespace {

constexpr std::int64_t kWidth = SHOAL_VECTOR_FLOATS;
constexpr float kByteScale = 1.0F / 255.0F;
typedef float Vec __attribute__((vector_size(SHOAL_VECTOR_FLOATS * 4), aligned(4), may_alias));

typedef std::uint32_t Bits
    __attribute__((vector_size(SHOAL_VECTOR_FLOATS * 4), aligned(4), may_alias));
typedef std::uint16_t Halves
    __attribute__((vector_size(SHOAL_VECTOR_FLOATS * 2), aligned(2), may_alias));
typedef std::uint16_t Half __attribute__((may_alias));
constexpr std::uint32_t kUpper = 0xffff0000U;

inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
inline Vec fill(float x) { return x - Vec{}; }
inline Bits load(const Bfloat16Pair* p) { return *reinterpret_cast<const Bits*>(p); }
inline Bits fill(Bfloat16Pair x) { return x - Bits{}; }

inline void add_product(Vec& sum, Vec a, Vec b) { sum += a * b; }

// The second numbers first, as the instruction does it.
inline void add_product(Vec& sum, Bits a, Bits b) {
#ifdef SHOAL_MULTIPLIES_BFLOAT16
  sum = (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  sum += (Vec)(a & kUpper) * (Vec)(b & kUpper);
  sum += (Vec)(a << 16) * (Vec)(b << 16);
#endif
}

template <class Element>
struct LanesOf;
template <>
struct LanesOf<float> {
  using Type = Vec;
};
template <>
struct LanesOf<Bfloat16Pair> {
  using Type = Bits;
};
template <class Element>
using Lanes = typename LanesOf<Element>::Type;

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
inline Vec finished(Vec sum, const float* bias, const float* activation) {
  if constexpr (kEpilogue == Epilogue::kNone) return sum;
  if constexpr (kEpilogue == Epilogue::kBias) return sum + load(bias);
  if constexpr (kEpilogue == Epilogue::kBiasTanh) return tanh(sum + load(bias));
  if constexpr (kEpilogue == Epilogue::kBiasRelu) {
    const Vec z = sum + load(bias);
    return z < 0.0F ? Vec{} : z;  // NaN stays: it is seen in the loss then
  }
  if constexpr (kEpilogue == Epilogue::kTimesTanhSlope) {
    const Vec a = load(activation);
    return sum * (1.0F - a * a);
  }
  if constexpr (kEpilogue == Epilogue::kTimesReluSlope) {
    const Vec a = load(activation);
    return a > 0.0F ? sum : Vec{};
  }
}

// A tile's sums, from registers to c. `i` and `j`: its first row and column.
template <Epilogue kEpilogue, class Element, int kRows, int kVectors>
inline void finish_as(const ProductOf<Element>& p, const Vec (&sum)[kRows][kVectors], float* c,
                      std::int64_t i, std::int64_t j) {
  const float* activation = p.activation + i * p.activation_row + j;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, c += p.c_row, activation += p.activation_row) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      store(c + v * kWidth,
            finished<kEpilogue>(sum[r][v], p.bias + j + v * kWidth, activation + v * kWidth));
  }
}

// tanh is long: a loop over what was stored keeps the code short.
template <class Element>
void take_tanh(const ProductOf<Element>& p, float* c, std::int64_t rows, std::int64_t j,
               std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r, c += p.c_row) {
    for (std::int64_t k = 0; k < columns; k += kWidth)
      store(c + k, finished<Epilogue::kBiasTanh>(load(c + k), p.bias + j + k, nullptr));
  }
}

template <class Element, int kRows, int kVectors>
inline void finish(const ProductOf<Element>& p, const Vec (&sum)[kRows][kVectors], float* c,
                   std::int64_t i, std::int64_t j) {
  switch (p.epilogue) {
    case Epilogue::kBias:
      return finish_as<Epilogue::kBias>(p, sum, c, i, j);
    case Epilogue::kBiasRelu:
      return finish_as<Epilogue::kBiasRelu>(p, sum, c, i, j);
    case Epilogue::kTimesTanhSlope:
      return finish_as<Epilogue::kTimesTanhSlope>(p, sum, c, i, j);
    case Epilogue::kTimesReluSlope:
      return finish_as<Epilogue::kTimesReluSlope>(p, sum, c, i, j);
    case Epilogue::kBiasTanh:
    case Epilogue::kNone:
      break;
  }
  finish_as<Epilogue::kNone>(p, sum, c, i, j);
  if (p.epilogue == Epilogue::kBiasTanh) take_tanh(p, c, kRows, j, kVectors * kWidth);
}

// kRows rows from row i on and kVectors vectors of columns from column j on: sums are in registers
// over the whole depth.
template <class Element, int kRows, int kVectors>
void tile(const ProductOf<Element>& p, const Element* from, const Element* b, float* c,
          std::int64_t i, std::int64_t j) {
  Vec sum[kRows][kVectors] = {};
  if (p.accumulate) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[r][v] = load(c + r * p.c_row + v * kWidth);
    }
  }
  const std::int64_t a_row = p.a_row;
  const std::int64_t a_step = p.a_step;
  const std::int64_t b_row = p.b_row;
  for (std::int64_t s = 0; s < p.segments; ++s, from += p.a_segment) {
    const Element* a = from;
    for (std::int64_t k = 0; k < p.depth; ++k, a += a_step, b += b_row) {
      Lanes<Element> row[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Lanes<Element> x = fill(a[r * a_row]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) add_product(sum[r][v], x, row[v]);
      }
    }
  }
  finish(p, sum, c, i, j);
}

template <class Element>
using Tile = void (*)(const ProductOf<Element>&, const Element* a, const Element* b, float* c,
                      std::int64_t i, std::int64_t j);

template <class Element, int kRows, int kVectors>
constexpr void list_tiles(Tile<Element>* tiles) {
  if constexpr (kRows > 0) {
    list_tiles<Element, kRows - 1, kVectors>(tiles);
    tiles[kRows] = tile<Element, kRows, kVectors>;
  }
}

template <class Element, int kVectors>
struct Tiles {
  constexpr Tiles() { list_tiles<Element, SHOAL_TILE_ROWS, kVectors>(of_rows); }
  Tile<Element> of_rows[SHOAL_TILE_ROWS + 1] = {};
};
template <class Element, int kVectors>
constexpr Tiles<Element, kVectors> kTiles;

// Rows of a group in as few tiles as can be, of sizes that differ by one at most.
template <class Element, int kVectors>
void column_block(const ProductOf<Element>& p, std::int64_t j) {
  const std::int64_t count = (p.m + SHOAL_TILE_ROWS - 1) / SHOAL_TILE_ROWS;
  const Element* b = p.b + j / kPanel * p.b_panel + j % kPanel;
  for (std::int64_t g = 0; g < p.groups; ++g) {
    const Element* a = p.a + g * p.a_group;
    float* c = p.c + g * p.c_group + j;
    for (std::int64_t t = 0, i = 0; t < count; ++t) {
      const std::int64_t rows = p.m * (t + 1) / count - i;
      kTiles<Element, kVectors>.of_rows[rows](p, a + i * p.a_row, b, c + i * p.c_row, i, j);
      i += rows;
    }
  }
}

template <class Element>
void product(const ProductOf<Element>& p) noexcept {
  std::int64_t j = 0;
  for (; j + SHOAL_TILE_VECTORS * kWidth <= p.n; j += SHOAL_TILE_VECTORS * kWidth)
    column_block<Element, SHOAL_TILE_VECTORS>(p, j);
  for (; j < p.n; j += kWidth) column_block<Element, 1>(p, j);
}

#ifdef SHOAL_MULTIPLIES_TILES
#include "shoal/learn/kernels/tile_products.h"
constexpr auto kPairProduct = product_by_tiles;
#else
constexpr auto kPairProduct = product<Bfloat16Pair>;
#endif

void column_sums(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
                 float* sums) noexcept {
  for (std::int64_t j = 0; j < n; j += kWidth) {
    Vec sum = {};
    for (std::int64_t r = 0; r < rows; ++r) sum += load(x + r * stride + j);
    store(sums + j, sum);
  }
}

// A number of channels that the compiler knows is done in vectors.
template <std::int64_t kChannels>
void unpack_channels(const std::uint8_t* bytes, std::int64_t pixels, float* out) {
  for (std::int64_t p = 0; p < pixels; ++p) {
    for (std::int64_t c = 0; c < kChannels; ++c)
      out[p * kChannels + c] = static_cast<float>(bytes[c * pixels + p]) * kByteScale;
  }
}

void unpack_image(const std::uint8_t* bytes, std::int64_t channels, std::int64_t pixels,
                  float* out) noexcept {
  if (channels == 1) return unpack_channels<1>(bytes, pixels, out);
  if (channels == 3) return unpack_channels<3>(bytes, pixels, out);
  if (channels == 4) return unpack_channels<4>(bytes, pixels, out);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t p = 0; p < pixels; ++p)
      out[p * channels + c] = static_cast<float>(bytes[c * pixels + p]) * kByteScale;
  }
}

// A rounded number in the lower half of each lane.
inline Bits rounded(Vec x) {
  const Bits bits = (Bits)x;
  const Bits up = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  return x == x ? up : (bits >> 16 | 0x40U);
}

inline void store_lower(Half* to, Bits x) {
  *reinterpret_cast<Halves*>(to) = __builtin_convertvector(x, Halves);
}

void round(const float* x, std::int64_t n, Bfloat16Pair* out) noexcept {
  Half* to = reinterpret_cast<Half*>(out);
  for (std::int64_t i = 0; i < n; i += kWidth) store_lower(to + i, rounded(load(x + i)));
}

void round_relu_slope(const float* x, const Bfloat16Pair* activation, std::int64_t n,
                      Bfloat16Pair* out) noexcept {
  const Half* of = reinterpret_cast<const Half*>(activation);
  Half* to = reinterpret_cast<Half*>(out);
  for (std::int64_t i = 0; i < n; i += kWidth) {
    const Halves halves = *reinterpret_cast<const Halves*>(of + i);
    const Vec a = (Vec)(__builtin_convertvector(halves, Bits) << 16);
    const Vec v = load(x + i);
    store_lower(to + i, rounded(a > 0.0F ? v : Vec{}));
  }
}

void pair_rows(const Bfloat16Pair* in, std::int64_t stride, std::int64_t rows, std::int64_t width,
               Bfloat16Pair* __restrict out) noexcept {
  for (; rows > 1; rows -= 2, in += 2 * stride, out += 2 * width) {
    const Bfloat16Pair* second = in + stride;
    for (std::int64_t j = 0; j < width; ++j) {
      out[2 * j] = (in[j] & ~kUpper) | second[j] << 16;
      out[2 * j + 1] = in[j] >> 16 | (second[j] & kUpper);
    }
  }
  for (std::int64_t j = 0; j < rows * width; ++j) {
    out[2 * j] = in[j] & ~kUpper;
    out[2 * j + 1] = in[j] >> 16;
  }
}

// A byte is a bfloat16 as it is; here in the upper half.
inline std::uint32_t upper(std::uint8_t byte) {
  return __builtin_bit_cast(std::uint32_t, static_cast<float>(byte));
}

template <std::int64_t kPairs>
void unpack_pairs_of_channels(const std::uint8_t* bytes, std::int64_t pixels,
                              Bfloat16Pair* __restrict out) {
  for (std::int64_t p = 0; p < pixels; ++p) {
    for (std::int64_t c = 0; c < kPairs; ++c)
      out[p * kPairs + c] =
          upper(bytes[2 * c * pixels + p]) >> 16 | upper(bytes[(2 * c + 1) * pixels + p]);
  }
}

void unpack_pairs(const std::uint8_t* bytes, std::int64_t channels, std::int64_t pixels,
                  std::int64_t stride, Bfloat16Pair* out) noexcept {
  if (channels == 4 && stride == 4) return unpack_pairs_of_channels<2>(bytes, pixels, out);
  Half* to = reinterpret_cast<Half*>(out);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t p = 0; p < pixels; ++p)
      to[p * stride + c] = static_cast<std::uint16_t>(upper(bytes[c * pixels + p]) >> 16);
  }
}

template <std::int64_t kChannels>
void unpack_channels_of_two(const std::uint8_t* first, const std::uint8_t* second,
                            std::int64_t pixels, Bfloat16Pair* __restrict out) {
  for (std::int64_t p = 0; p < pixels; ++p) {
    for (std::int64_t c = 0; c < kChannels; ++c)
      out[p * kChannels + c] = upper(first[c * pixels + p]) >> 16 | upper(second[c * pixels + p]);
  }
}

void unpack_two(const std::uint8_t* first, const std::uint8_t* second, std::int64_t channels,
                std::int64_t pixels, std::int64_t stride, Bfloat16Pair* out) noexcept {
  if (channels == 4 && stride == 4) return unpack_channels_of_two<4>(first, second, pixels, out);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t p = 0; p < pixels; ++p)
      out[p * stride + c] = upper(first[c * pixels + p]) >> 16 | upper(second[c * pixels + p]);
  }
}

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef std::int32_t FourWhich __attribute__((vector_size(16)));

// Of whatever has four bytes: they are moved, no more.
template <class Element>
inline Four load_four(const Element* p) {
  return *reinterpret_cast<const Four*>(p);
}
template <class Element>
inline void store_four(Element* p, Four v) {
  *reinterpret_cast<Four*>(p) = v;
}

template <class Element>
inline void transpose_four(const Element* in, std::int64_t stride, Element* out,
                           std::int64_t out_stride) {
  const Four a = load_four(in), b = load_four(in + stride);
  const Four c = load_four(in + 2 * stride), d = load_four(in + 3 * stride);
  const FourWhich low{0, 4, 1, 5}, high{2, 6, 3, 7}, first{0, 1, 4, 5}, second{2, 3, 6, 7};
  const Four ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
  const Four ab_high = __builtin_shuffle(a, b, high), cd_high = __builtin_shuffle(c, d, high);
  store_four(out, __builtin_shuffle(ab, cd, first));
  store_four(out + out_stride, __builtin_shuffle(ab, cd, second));
  store_four(out + 2 * out_stride, __builtin_shuffle(ab_high, cd_high, first));
  store_four(out + 3 * out_stride, __builtin_shuffle(ab_high, cd_high, second));
}

template <class Element>
void transpose(const Element* in, std::int64_t rows, std::int64_t columns, std::int64_t stride,
               Element* out, std::int64_t out_stride) noexcept {
  const std::int64_t whole_rows = rows / 4 * 4;
  const std::int64_t whole_columns = columns / 4 * 4;
  for (std::int64_t j = 0; j < whole_columns; j += 4) {
    for (std::int64_t i = 0; i < whole_rows; i += 4)
      transpose_four(in + i * stride + j, stride, out + j * out_stride + i, out_stride);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j)
      out[j * out_stride + i] = in[i * stride + j];
  }
}

void relu_slope(float* x, const float* activation, std::int64_t n) noexcept {
  for (std::int64_t i = 0; i < n; ++i) x[i] = activation[i] > 0.0F ? x[i] : 0.0F;
}

void add(float* x, const float* y, std::int64_t n) noexcept {
  for (std::int64_t i = 0; i < n; ++i) x[i] += y[i];
}

inline Vec sigmoid(Vec x) { return 0.5F * tanh(0.5F * x) + 0.5F; }

void lstm_step(const LstmStep& s) noexcept {
  for (std::int64_t r = 0; r < s.rows; ++r) {
    float* gates = s.gates + r * 4 * s.width;
    for (std::int64_t j = 0; j < s.width; j += kWidth) {
      const std::int64_t at = r * s.width + j;
      const Vec i = sigmoid(load(gates + j));
      const Vec f = sigmoid(load(gates + s.width + j));
      const Vec g = tanh(load(gates + 2 * s.width + j));
      const Vec o = sigmoid(load(gates + 3 * s.width + j));
      const Vec cell = f * load(s.before + at) + i * g;
      const Vec squashed = tanh(cell);
      store(gates + j, i);
      store(gates + s.width + j, f);
      store(gates + 2 * s.width + j, g);
      store(gates + 3 * s.width + j, o);
      store(s.cell + at, cell);
      store(s.squashed + at, squashed);
      store(s.output + at, o * squashed);
    }
  }
}

void lstm_step_back(const LstmStepBack& s) noexcept {
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float* gates = s.gates + r * 4 * s.width;
    float* d_gates = s.d_gates + r * 4 * s.width;
    for (std::int64_t j = 0; j < s.width; j += kWidth) {
      const std::int64_t at = r * s.width + j;
      const Vec i = load(gates + j);
      const Vec f = load(gates + s.width + j);
      const Vec g = load(gates + 2 * s.width + j);
      const Vec o = load(gates + 3 * s.width + j);
      const Vec squashed = load(s.squashed + at);
      const Vec d_output = load(s.d_output + at);
      const Vec d_cell = load(s.d_cell + at) + d_output * o * (1.0F - squashed * squashed);
      store(d_gates + j, d_cell * g * i * (1.0F - i));
      store(d_gates + s.width + j, d_cell * load(s.before + at) * f * (1.0F - f));
      store(d_gates + 2 * s.width + j, d_cell * i * (1.0F - g * g));
      store(d_gates + 3 * s.width + j, d_output * squashed * o * (1.0F - o));
      store(s.d_cell + at, d_cell * f);
    }
  }
}

}  // namespace

extern const MlpKernels kKernels;
const MlpKernels kKernels{SHOAL_KERNELS_NAME,
                          false,
                          product<float>,
                          kPairProduct,
                          column_sums,
                          unpack_image,
                          transpose<float>,
                          transpose<Bfloat16Pair>,
                          round,
                          round_relu_slope,
                          pair_rows,
                          unpack_pairs,
                          unpack_two,
                          relu_slope,
                          add,
                          lstm_step,
                          lstm_step_back};

}  // namespace shoal::learn::SHOAL_KERNELS
