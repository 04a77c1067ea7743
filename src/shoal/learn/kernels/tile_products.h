// PairProduct by Intel's AMX: one instruction multiplies a tile of up to 16 rows of 16 pairs with 16 rows of 16
// columns of pairs, and adds to a tile of floats. Included by mlp_kernels_body.h, within its namespace, where
// SHOAL_MULTIPLIES_TILES is defined.
//
// The instruction (TDPBF16PS; Intel's Software Developer's Manual) sums the first numbers of its 16 pairs, and
// the second ones, and adds both sums to the element. So an element's order follows from k alone, which tiles
// divide from the same beginning whatever the number of rows.
//
// Eight tiles: 0 to 3 are sums; the others are factors.

constexpr std::int64_t kTile = 16;  // rows, pairs in a row, columns

// The intrinsics of g++ do not tell the compiler that memory is read and written: what was written before is in
// memory, and what comes later reads it anew.
inline void memory_is_used() { asm volatile("" ::: "memory"); }

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Tiles that have `rows`: those of sums, and `factors` of the others.
inline void set_rows(std::int64_t rows, int factors) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = 64;
    config.rows[t] = static_cast<std::uint8_t>(t < 4 + factors ? rows : kTile);
  }
  asm volatile("ldtilecfg %0" ::"m"(config));  // all of it, which the intrinsic does not say
}

inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <Epilogue kEpilogue>
void finish_rows_as(const PairProduct& p, float* c, std::int64_t rows, std::int64_t i,
                    std::int64_t j, std::int64_t columns) {
  const float* activation = p.activation + i * p.activation_row + j;
  for (std::int64_t r = 0; r < rows; ++r, c += p.c_row, activation += p.activation_row) {
    for (std::int64_t k = 0; k < columns; k += kWidth)
      store(c + k, finished<kEpilogue>(load(c + k), p.bias + j + k, activation + k));
  }
}

// What becomes of sums that were stored. `i` and `j`: the first row and column.
inline void finish_rows(const PairProduct& p, float* c, std::int64_t rows, std::int64_t i,
                        std::int64_t j, std::int64_t columns) {
  switch (p.epilogue) {
    case Epilogue::kNone:
      return;
    case Epilogue::kBias:
      return finish_rows_as<Epilogue::kBias>(p, c, rows, i, j, columns);
    case Epilogue::kBiasRelu:
      return finish_rows_as<Epilogue::kBiasRelu>(p, c, rows, i, j, columns);
    case Epilogue::kTimesTanhSlope:
      return finish_rows_as<Epilogue::kTimesTanhSlope>(p, c, rows, i, j, columns);
    case Epilogue::kTimesReluSlope:
      return finish_rows_as<Epilogue::kTimesReluSlope>(p, c, rows, i, j, columns);
    case Epilogue::kBiasTanh:
      return take_tanh(p, c, rows, j, columns);
  }
}

// Rows of `width` pairs, as a tile that ends with zeros.
inline void fill_tile(const Bfloat16Pair* from, std::int64_t stride, std::int64_t rows,
                      std::int64_t width, Bfloat16Pair* tile) {
  const __mmask16 there = static_cast<__mmask16>((1U << width) - 1);
  for (std::int64_t r = 0; r < kTile; ++r, tile += kTile) {
    const __m512i row =
        r < rows ? _mm512_maskz_loadu_epi32(there, from + r * stride) : _mm512_setzero_si512();
    _mm512_store_si512(tile, row);
  }
}

// Some rows of a group, and what they become.
struct TileRows {
  const Bfloat16Pair* a;
  float* c;
  std::int64_t first;
};

// Sums 0 and 1 are of the first rows, 2 and 3 of the second; factors 4 and 5 are rows, 6 and 7 columns. The unit
// takes 16 cycles for other columns, and as many as there are rows for other rows: so columns change once.
template <int kRows, int kColumns>
inline void multiply_tiles(const Bfloat16Pair* const (&a)[2], std::int64_t a_bytes,
                           const Bfloat16Pair* const (&b)[2], std::int64_t b_bytes) {
  _tile_loadd(6, b[0], b_bytes);
  _tile_loadd(4, a[0], a_bytes);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kRows == 2) {
    _tile_loadd(5, a[1], a_bytes);
    _tile_dpbf16ps(2, 5, 6);
  }
  if constexpr (kColumns == 2) {
    _tile_loadd(7, b[1], b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRows == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

// kRows tiles of `rows` rows times kColumns tiles of columns from column j on.
template <int kRows, int kColumns>
void tiles_of_rows(const PairProduct& p, const TileRows* of, std::int64_t rows, std::int64_t j) {
  const std::int64_t c_bytes = p.c_row * 4, a_bytes = p.a_row * 4, b_bytes = p.b_row * 4;
  memory_is_used();
  if (p.accumulate) {
    _tile_loadd(0, of[0].c, c_bytes);
    if constexpr (kColumns == 2) _tile_loadd(1, of[0].c + kTile, c_bytes);
    if constexpr (kRows == 2) _tile_loadd(2, of[1].c, c_bytes);
    if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, of[1].c + kTile, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const Bfloat16Pair* b = p.b + j / kPanel * p.b_panel + j % kPanel;
  const std::int64_t whole = p.depth / kTile * kTile, left = p.depth - whole;
  for (std::int64_t s = 0; s < p.segments; ++s) {
    const std::int64_t at = s * p.a_segment;
    for (std::int64_t k = 0; k < whole; k += kTile, b += kTile * p.b_row) {
      multiply_tiles<kRows, kColumns>({of[0].a + at + k, of[kRows - 1].a + at + k}, a_bytes,
                                      {b, b + kTile}, b_bytes);
    }
    if (left > 0) {
      alignas(64) Bfloat16Pair tile[4][kTile * kTile];
      for (int r = 0; r < kRows; ++r) fill_tile(of[r].a + at + whole, p.a_row, rows, left, tile[r]);
      for (int v = 0; v < kColumns; ++v)
        fill_tile(b + v * kTile, p.b_row, left, kTile, tile[2 + v]);
      memory_is_used();
      multiply_tiles<kRows, kColumns>({tile[0], tile[1]}, 64, {tile[2], tile[3]}, 64);
      memory_is_used();
      b += left * p.b_row;
    }
  }
  _tile_stored(0, of[0].c, c_bytes);
  if constexpr (kColumns == 2) _tile_stored(1, of[0].c + kTile, c_bytes);
  if constexpr (kRows == 2) _tile_stored(2, of[1].c, c_bytes);
  if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, of[1].c + kTile, c_bytes);
  memory_is_used();
  for (int r = 0; r < kRows; ++r) finish_rows(p, of[r].c, rows, of[r].first, j, kColumns * kTile);
}

// Tiles of `size` rows, of all groups, two at a time. Rows of a group are divided as in column_block().
template <int kColumns>
void tiles_of_size(const PairProduct& p, std::int64_t size, std::int64_t j) {
  const std::int64_t count = (p.m + kTile - 1) / kTile;
  TileRows two[2];
  int waiting = 0;
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t first = p.m * t / count;
    if (p.m * (t + 1) / count - first != size) continue;
    for (std::int64_t g = 0; g < p.groups; ++g) {
      two[waiting++] = {p.a + g * p.a_group + first * p.a_row,
                        p.c + g * p.c_group + first * p.c_row + j, first};
      if (waiting < 2) continue;
      tiles_of_rows<2, kColumns>(p, two, size, j);
      waiting = 0;
    }
  }
  if (waiting == 1) tiles_of_rows<1, kColumns>(p, two, size, j);
}

// The pairs of a row lie beside each other, as a tile has them.
void product_of_rows(const PairProduct& p) {
  const std::int64_t count = (p.m + kTile - 1) / kTile;
  const std::int64_t least = p.m / count;
  for (std::int64_t size = least; size <= least + (p.m % count != 0 ? 1 : 0); ++size) {
    set_rows(size, 2);
    std::int64_t j = 0;
    for (; j + 2 * kTile <= p.n; j += 2 * kTile) tiles_of_size<2>(p, size, j);
    if (j < p.n) tiles_of_size<1>(p, size, j);
  }
}

typedef std::int32_t Which __attribute__((vector_size(64)));

// out[c][r] = row r, number c.
inline void transpose_tile(const Bits (&row)[kTile], Bfloat16Pair* out) {
  constexpr Which low{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29};
  constexpr Which high{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31};
  constexpr Which low_two{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
  constexpr Which high_two{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31};
  constexpr Which even{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  constexpr Which odd{4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31};
  Bits two[kTile], four[kTile];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    two[i] = __builtin_shuffle(row[i], row[i + 1], low);
    two[i + 1] = __builtin_shuffle(row[i], row[i + 1], high);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    four[i] = __builtin_shuffle(two[i], two[i + 2], low_two);
    four[i + 1] = __builtin_shuffle(two[i], two[i + 2], high_two);
    four[i + 2] = __builtin_shuffle(two[i + 1], two[i + 3], low_two);
    four[i + 3] = __builtin_shuffle(two[i + 1], two[i + 3], high_two);
  }
  // Quarter q of four[4 * g + i] is column 4 * q + i of rows 4 * g to 4 * g + 3.
  Bits* column = reinterpret_cast<Bits*>(out);
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    const Bits first = __builtin_shuffle(four[i], four[4 + i], even);
    const Bits first_too = __builtin_shuffle(four[8 + i], four[12 + i], even);
    const Bits second = __builtin_shuffle(four[i], four[4 + i], odd);
    const Bits second_too = __builtin_shuffle(four[8 + i], four[12 + i], odd);
    column[i] = __builtin_shuffle(first, first_too, even);
    column[4 + i] = __builtin_shuffle(second, second_too, even);
    column[8 + i] = __builtin_shuffle(first, first_too, odd);
    column[12 + i] = __builtin_shuffle(second, second_too, odd);
  }
}

// Pairs k to k + 16 of all segments, of `columns` rows that lie beside each other: a tile of these rows.
struct Columns {
  const PairProduct& p;
  const Bfloat16Pair* segment;
  std::int64_t in_segment = 0;

  void take(std::int64_t count, std::int64_t columns, Bfloat16Pair* tile) {
    const __mmask16 there = static_cast<__mmask16>((1U << columns) - 1);
    Bits row[kTile];
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < kTile; ++r) {
      if (r >= count) {
        row[r] = Bits{};
        continue;
      }
      row[r] = (Bits)_mm512_maskz_loadu_epi32(there, segment + in_segment * p.a_step);
      if (++in_segment == p.depth) {
        in_segment = 0;
        segment += p.a_segment;
      }
    }
    transpose_tile(row, tile);
  }
};

// kColumns tiles of columns from column j on, of `rows` rows of a group: sums 0 to 3. Factor 4 has the rows, the others
// columns.
template <int kColumns>
void tiles_of_columns(const PairProduct& p, const Bfloat16Pair* a, float* c, std::int64_t rows,
                      std::int64_t i, std::int64_t j) {
  const std::int64_t c_bytes = p.c_row * 4, b_bytes = p.b_row * 4;
  memory_is_used();
  if (p.accumulate) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (kColumns > 1) _tile_loadd(1, c + kTile, c_bytes);
    if constexpr (kColumns > 2) _tile_loadd(2, c + 2 * kTile, c_bytes);
    if constexpr (kColumns > 3) _tile_loadd(3, c + 3 * kTile, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const Bfloat16Pair* b[kColumns];
  for (int v = 0; v < kColumns; ++v) {
    const std::int64_t column = j + v * kTile;
    b[v] = p.b + column / kPanel * p.b_panel + column % kPanel;
  }
  alignas(64) Bfloat16Pair factor[2][kTile * kTile];
  alignas(64) Bfloat16Pair last[kColumns][kTile * kTile];
  std::int64_t stride = b_bytes;
  Columns from{p, a};
  const std::int64_t depth = p.segments * p.depth;
  for (std::int64_t k = 0; k < depth; k += kTile) {
    Bfloat16Pair* tile = factor[k / kTile % 2];
    const std::int64_t count = smaller(kTile, depth - k);
    from.take(count, rows, tile);
    if (count < kTile) {
      for (int v = 0; v < kColumns; ++v) {
        fill_tile(b[v], p.b_row, count, kTile, last[v]);
        b[v] = last[v];
      }
      stride = 64;
    }
    memory_is_used();
    _tile_loadd(4, tile, 64);
    _tile_loadd(5, b[0], stride);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kColumns > 1) {
      _tile_loadd(6, b[1], stride);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kColumns > 2) {
      _tile_loadd(7, b[2], stride);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (kColumns > 3) {
      _tile_loadd(5, b[3], stride);
      _tile_dpbf16ps(3, 4, 5);
    }
    for (int v = 0; v < kColumns; ++v) b[v] += kTile * p.b_row;
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kColumns > 1) _tile_stored(1, c + kTile, c_bytes);
  if constexpr (kColumns > 2) _tile_stored(2, c + 2 * kTile, c_bytes);
  if constexpr (kColumns > 3) _tile_stored(3, c + 3 * kTile, c_bytes);
  memory_is_used();
  finish_rows(p, c, rows, i, j, kColumns * kTile);
}

// Pair k of all rows lies together: it is turned as it is read.
void product_of_columns(const PairProduct& p) {
  for (std::int64_t i = 0; i < p.m; i += kTile) {
    const std::int64_t rows = smaller(kTile, p.m - i);
    if (i == 0 || rows < kTile) set_rows(rows, 1);
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const Bfloat16Pair* a = p.a + g * p.a_group + i;
      float* c = p.c + g * p.c_group + i * p.c_row;
      for (std::int64_t j = 0; j < p.n; j += 4 * kTile) {
        switch (smaller(4, (p.n - j) / kTile)) {
          case 4:
            tiles_of_columns<4>(p, a, c + j, rows, i, j);
            break;
          case 3:
            tiles_of_columns<3>(p, a, c + j, rows, i, j);
            break;
          case 2:
            tiles_of_columns<2>(p, a, c + j, rows, i, j);
            break;
          default:
            tiles_of_columns<1>(p, a, c + j, rows, i, j);
        }
      }
    }
  }
}

void product_by_tiles(const PairProduct& p) noexcept {
  if (p.m == 0) return;
  if (p.a_step == 1) {
    product_of_rows(p);
  } else if (p.a_row == 1) {
    product_of_columns(p);
  } else {
    return product<Bfloat16Pair>(p);
  }
  _tile_release();
}
