#include "shoal/learn/network/bfloat16_linear.h"

#include <algorithm>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kRowsOfTask = 128;  // of a panel that has many

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// Columns of panel `panel` of so many.
std::int64_t width_of(std::int64_t panel, std::int64_t columns) {
  return std::min(kPanel, columns - panel * kPanel);
}

}  // namespace

Bfloat16Linear::Bfloat16Linear(const Layer& layer, const MlpKernels& kernels, ThreadTeam& team)
    : layer_(layer),
      kernels_(kernels),
      team_(team),
      weight_(index(layer.out * layer.in / 2)),
      transposed_(index(panels(layer.out) * layer.in / 2 * kPanel)),
      bias_(index(layer.out)),
      columns_(index(team.threads())) {
  SHOAL_CHECK(layer.in % kPad == 0 && layer.out % kPad == 0, "a wide layer has no ragged columns");
}

void Bfloat16Linear::pack(std::span<const float> weight, std::span<const float> bias) {
  const std::int64_t pairs = layer_.in / 2;
  team_.run(static_cast<int>(panels(layer_.out)), [&](int panel, int) {
    const std::int64_t first = panel * kPanel;
    const std::int64_t width = width_of(panel, layer_.out);
    Bfloat16Pair* rows = weight_.data() + first * pairs;
    kernels_.round(weight.data() + first * layer_.in, width * layer_.in, rows);
    kernels_.transpose_pairs(rows, width, pairs, pairs, transposed_.data() + first * pairs, kPanel);
  });
  std::ranges::copy(bias, bias_.data());
}

void Bfloat16Linear::forward(const Bfloat16Pair* x, std::int64_t rows, float* out,
                             std::int64_t stride) {
  const std::int64_t pairs = layer_.in / 2;
  const std::int64_t parts = (rows + kRowsOfTask - 1) / kRowsOfTask;
  team_.run(static_cast<int>(parts * panels(layer_.out)), [&](int i, int) {
    const std::int64_t panel = i / parts;
    const std::int64_t first = i % parts * kRowsOfTask;
    kernels_.pair_product({.m = std::min(kRowsOfTask, rows - first),
                           .n = width_of(panel, layer_.out),
                           .depth = pairs,
                           .a = x + first * pairs,
                           .a_row = pairs,
                           .b = transposed_.data() + panel * pairs * kPanel,
                           .b_row = kPanel,
                           .c = out + first * stride + panel * kPanel,
                           .c_row = stride,
                           .epilogue = Epilogue::kBiasRelu,
                           .bias = bias_.data() + panel * kPanel});
  });
}

void Bfloat16Linear::backward(const Bfloat16Pair* x, std::int64_t rows, const float* delta,
                              std::span<float> d_weight, std::span<float> d_bias, float* d_x) {
  const std::int64_t in = layer_.in, out = layer_.out;
  const std::int64_t paired_rows = (rows + 1) / 2;
  kernels_.column_sums(delta, rows, out, out, d_bias.data());
  Bfloat16Pair* rounded = delta_.room(rows * out / 2);
  kernels_.round(delta, rows * out, rounded);
  Bfloat16Pair* paired = paired_delta_.room(2 * paired_rows * out);
  Bfloat16Pair* turned = paired + paired_rows * out;  // once, for every panel
  kernels_.pair_rows(rounded, out / 2, rows, out / 2, paired);
  kernels_.transpose_pairs(paired, paired_rows, out, out, turned, paired_rows);
  for (AlignedPairs& of_thread : columns_) of_thread.room(std::max(paired_rows, out / 2) * kPanel);
  team_.run(static_cast<int>(panels(in)), [&](int panel, int thread) {
    const std::int64_t first = panel * kPanel;
    const std::int64_t width = width_of(panel, in);
    Bfloat16Pair* columns = columns_[index(thread)].data();
    kernels_.pair_rows(x + first / 2, in / 2, rows, width / 2, columns);
    kernels_.pair_product({.m = out,
                           .n = width,
                           .depth = paired_rows,
                           .a = turned,
                           .a_row = paired_rows,
                           .b = columns,
                           .b_row = width,
                           .c = d_weight.data() + first,
                           .c_row = in});
    kernels_.pair_rows(weight_.data() + first / 2, in / 2, out, width / 2, columns);
    kernels_.pair_product({.m = rows,
                           .n = width,
                           .depth = out / 2,
                           .a = rounded,
                           .a_row = out / 2,
                           .b = columns,
                           .b_row = width,
                           .c = d_x + first,
                           .c_row = in});
  });
}

}  // namespace shoal::learn
