#include "shoal/learn/network/bfloat16_convolution.h"

#include <algorithm>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr Bfloat16Pair kOnes = bfloat16_pair(1.0F, 1.0F);

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// Number `row` of those that the rows of pairs in `panel` make, in its column.
void put(Bfloat16Pair* panel, std::int64_t row, std::int64_t column, float x) {
  Bfloat16Pair& pair = panel[row / 2 * kPanel + column];
  const Bfloat16Pair bits = to_bfloat16(x);
  pair = row % 2 == 0 ? (pair & 0xffff0000U) | bits : (pair & 0xffffU) | bits << 16;
}

}  // namespace

Bfloat16Convolution::Bfloat16Convolution(const Layer& layer, const ImageShape& in, float scale,
                                         const MlpKernels& kernels)
    : layer_(layer),
      in_(in),
      out_(output_of(layer, in)),
      scale_(scale),
      kernels_(kernels),
      forward_(index(panels(out_.channels) * patch() / 2 * kPanel)),
      bias_(index(out_.channels)) {
  SHOAL_CHECK(layer.kernel > 0 && in.channels >= layer.in, "a convolution of such images");
  SHOAL_CHECK(
      run() % 2 == 0 && in.width * in.channels % 2 == 0 && layer.stride * in.channels % 2 == 0,
      "pairs that no line and no patch cuts");
}

void Bfloat16Convolution::pack_forward(std::span<const float> weight,
                                       std::span<const float> bias) noexcept {
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t row = y * run() + x * in_.channels + c;
    put(forward_.data() + o / kPanel * patch() / 2 * kPanel, row, o % kPanel, scale_ * *from++);
  });
  std::ranges::copy(bias, bias_.data());
}

void Bfloat16Convolution::pack_backward(std::span<const float> weight) noexcept {
  const std::int64_t width = panels(in_.channels);
  const std::int64_t rows = out_.channels / 2;
  backward_.room(layer_.kernel * layer_.kernel * width * rows * kPanel);
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t panel = (y * layer_.kernel + x) * width + c / kPanel;
    put(backward_.data() + panel * rows * kPanel, o, c % kPanel, scale_ * *from++);
  });
}

void Bfloat16Convolution::forward(const Bfloat16Pair* in, float* out) const noexcept {
  kernels_.pair_product({.m = out_.width,
                         .n = out_.channels,
                         .depth = run() / 2,
                         .a = in,
                         .a_row = layer_.stride * in_.channels / 2,
                         .b = forward_.data(),
                         .b_row = kPanel,
                         .c = out,
                         .c_row = out_.channels,
                         .epilogue = Epilogue::kBiasRelu,
                         .bias = bias_.data(),
                         .segments = layer_.kernel,
                         .a_segment = in_.width * in_.channels / 2,
                         .b_panel = patch() / 2 * kPanel,
                         .groups = out_.height,
                         .a_group = layer_.stride * in_.width * in_.channels / 2,
                         .c_group = out_.width * out_.channels});
}

void Bfloat16Convolution::add_gradient(const Bfloat16Pair* in, const Bfloat16Pair* delta,
                                       float* gradient) const noexcept {
  const std::int64_t line = in_.width * in_.channels;
  for_blocks_of_lines(out_, [&](std::int64_t first, std::int64_t lines) {
    kernels_.pair_product({.m = run(),
                           .n = out_.channels,
                           .depth = out_.width,
                           .a = in + first * layer_.stride * line,
                           .a_row = 1,
                           .a_step = layer_.stride * in_.channels,
                           .b = delta + first * out_.width * out_.channels,
                           .b_row = out_.channels,
                           .c = gradient,
                           .c_row = out_.channels,
                           .segments = lines,
                           .a_segment = layer_.stride * line,
                           .groups = layer_.kernel,
                           .a_group = line,
                           .c_group = run() * out_.channels,
                           .accumulate = true});
  });
  kernels_.pair_product({.m = 1,
                         .n = out_.channels,
                         .depth = out_.pixels(),
                         .a = &kOnes,
                         .a_step = 0,
                         .b = delta,
                         .b_row = out_.channels,
                         .c = gradient + patch() * out_.channels,
                         .accumulate = true});
}

void Bfloat16Convolution::unpack_gradient(const float* gradient, std::span<float> weight,
                                          std::span<float> bias) const noexcept {
  float* to = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    *to++ = scale_ * gradient[(y * run() + x * in_.channels + c) * out_.channels + o];
  });
  std::copy_n(gradient + patch() * out_.channels, bias.size(), bias.begin());
}

void Bfloat16Convolution::input_gradient(const Bfloat16Pair* delta, float* d_in) const noexcept {
  std::fill_n(d_in, in_.size(), 0.0F);
  const std::int64_t width = panels(in_.channels) * out_.channels / 2 * kPanel;
  for (std::int64_t y = 0; y < layer_.kernel; ++y) {
    for (std::int64_t x = 0; x < layer_.kernel; ++x) {
      kernels_.pair_product({.m = out_.width,
                             .n = in_.channels,
                             .depth = out_.channels / 2,
                             .a = delta,
                             .a_row = out_.channels / 2,
                             .b = backward_.data() + (y * layer_.kernel + x) * width,
                             .b_row = kPanel,
                             .c = d_in + (y * in_.width + x) * in_.channels,
                             .c_row = layer_.stride * in_.channels,
                             .b_panel = out_.channels / 2 * kPanel,
                             .groups = out_.height,
                             .a_group = out_.width * out_.channels / 2,
                             .c_group = layer_.stride * in_.width * in_.channels,
                             .accumulate = true});
    }
  }
}

}  // namespace shoal::learn
