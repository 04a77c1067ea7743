#include "shoal/learn/network/wide_linear.h"

#include <algorithm>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kRowsOfTask = 128;  // of a panel that has many
constexpr std::int64_t kFewRows = 32;      // for which nothing is worth being copied

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// Columns of panel `panel` of so many.
std::int64_t width_of(std::int64_t panel, std::int64_t columns) {
  return std::min(kPanel, columns - panel * kPanel);
}

void copy_columns(const float* from, std::int64_t rows, std::int64_t stride, std::int64_t width,
                  float* to) {
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(from + r * stride, width, to + r * kPanel);
}

}  // namespace

WideLinear::WideLinear(const Layer& layer, const MlpKernels& kernels, ThreadTeam& team)
    : layer_(layer),
      kernels_(kernels),
      team_(team),
      transposed_(index(panels(layer.out) * layer.in * kPanel)),
      bias_(index(layer.out)),
      columns_(index(team.threads())) {
  SHOAL_CHECK(layer.in % kPad == 0 && layer.out % kPad == 0, "a wide layer has no ragged columns");
}

void WideLinear::pack(std::span<const float> weight, std::span<const float> bias) {
  team_.run(static_cast<int>(panels(layer_.out)), [&](int panel, int) {
    const std::int64_t first = panel * kPanel;
    kernels_.transpose(weight.data() + first * layer_.in, width_of(panel, layer_.out), layer_.in,
                       layer_.in, transposed_.data() + first * layer_.in, kPanel);
  });
  std::ranges::copy(bias, bias_.data());
}

void WideLinear::forward(const Rows& x, float* out, std::int64_t stride) {
  const std::int64_t parts = (x.count + kRowsOfTask - 1) / kRowsOfTask;
  const std::int64_t tasks = parts * panels(layer_.out);
  const auto task = [&](int i, int) {
    const std::int64_t panel = i / parts;
    const std::int64_t first = i % parts * kRowsOfTask;
    kernels_.product({.m = std::min(kRowsOfTask, x.count - first),
                      .n = width_of(panel, layer_.out),
                      .depth = layer_.in,
                      .a = x.data + first * x.stride,
                      .a_row = x.stride,
                      .b = transposed_.data() + panel * layer_.in * kPanel,
                      .b_row = kPanel,
                      .c = out + first * stride + panel * kPanel,
                      .c_row = stride,
                      .epilogue = Epilogue::kBiasRelu,
                      .bias = bias_.data() + panel * kPanel});
  };
  team_.run(static_cast<int>(tasks), task);
}

void WideLinear::backward(const Rows& x, const float* delta, std::span<const float> weight,
                          std::span<float> d_weight, std::span<float> d_bias, float* d_x) {
  kernels_.column_sums(delta, x.count, layer_.out, layer_.out, d_bias.data());
  if (x.count <= kFewRows) {
    backward_few(x, delta, weight, d_weight, d_x);
    return;
  }
  const std::int64_t room = std::max(x.count, layer_.out) * kPanel;
  for (AlignedFloats& of_thread : columns_) {
    if (static_cast<std::int64_t>(of_thread.size()) < room) of_thread = AlignedFloats(index(room));
  }
  team_.run(static_cast<int>(panels(layer_.in)), [&](int panel, int thread) {
    const Block block{0, layer_.out, panel * kPanel, width_of(panel, layer_.in)};
    float* columns = columns_[index(thread)].data();
    copy_columns(x.data + block.input, x.count, x.stride, block.inputs, columns);
    weight_gradient(block, {columns, x.count, kPanel}, delta, d_weight);
    copy_columns(weight.data() + block.input, layer_.out, layer_.in, block.inputs, columns);
    input_gradient(block, x.count, delta, columns, kPanel, d_x);
  });
}

void WideLinear::backward_few(const Rows& x, const float* delta, std::span<const float> weight,
                              std::span<float> d_weight, float* d_x) {
  const auto output_panels = static_cast<int>(panels(layer_.out));
  const auto input_panels = static_cast<int>(panels(layer_.in));
  team_.run(output_panels + input_panels, [&](int task, int) {
    if (task < output_panels) {
      const Block block{task * kPanel, width_of(task, layer_.out), 0, layer_.in};
      weight_gradient(block, x, delta, d_weight);
    } else {
      const std::int64_t panel = task - output_panels;
      const Block block{0, layer_.out, panel * kPanel, width_of(panel, layer_.in)};
      input_gradient(block, x.count, delta, weight.data() + block.input, layer_.in, d_x);
    }
  });
}

void WideLinear::weight_gradient(const Block& block, const Rows& x, const float* delta,
                                 std::span<float> d_weight) const noexcept {
  kernels_.product({.m = block.outputs,
                    .n = block.inputs,
                    .depth = x.count,
                    .a = delta + block.output,
                    .a_row = 1,
                    .a_step = layer_.out,
                    .b = x.data,
                    .b_row = x.stride,
                    .c = d_weight.data() + block.output * layer_.in + block.input,
                    .c_row = layer_.in});
}

void WideLinear::input_gradient(const Block& block, std::int64_t rows, const float* delta,
                                const float* weight, std::int64_t weight_stride,
                                float* d_x) const noexcept {
  kernels_.product({.m = rows,
                    .n = block.inputs,
                    .depth = layer_.out,
                    .a = delta,
                    .a_row = layer_.out,
                    .b = weight,
                    .b_row = weight_stride,
                    .c = d_x + block.input,
                    .c_row = layer_.in});
}

}  // namespace shoal::learn
