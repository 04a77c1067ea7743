#include "shoal/learn/network/convolution.h"

#include <algorithm>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace

ImageShape output_of(const Layer& layer, const ImageShape& in) {
  return {padded(layer.out), (in.height - layer.kernel) / layer.stride + 1,
          (in.width - layer.kernel) / layer.stride + 1};
}

Convolution::Convolution(const Layer& layer, const ImageShape& in, const MlpKernels& kernels)
    : layer_(layer),
      in_(in),
      out_(output_of(layer, in)),
      kernels_(kernels),
      forward_(index(panels(out_.channels) * patch() * kPanel)),
      bias_(index(out_.channels)) {
  SHOAL_CHECK(layer.kernel > 0 && in.channels >= layer.in, "a convolution of such images");
}

void Convolution::pack_forward(std::span<const float> weight,
                               std::span<const float> bias) noexcept {
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t row = y * run() + x * in_.channels + c;
    forward_.data()[(o / kPanel * patch() + row) * kPanel + o % kPanel] = *from++;
  });
  std::ranges::copy(bias, bias_.data());
}

void Convolution::pack_backward(std::span<const float> weight) noexcept {
  const std::int64_t width = panels(in_.channels);
  if (backward_.size() == 0)
    backward_ =
        AlignedFloats(index(layer_.kernel * layer_.kernel * width * out_.channels * kPanel));
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t panel = (y * layer_.kernel + x) * width + c / kPanel;
    backward_.data()[(panel * out_.channels + o) * kPanel + c % kPanel] = *from++;
  });
}

void Convolution::forward(const float* in, float* out) const noexcept {
  kernels_.product({.m = out_.width,
                    .n = out_.channels,
                    .depth = run(),
                    .a = in,
                    .a_row = layer_.stride * in_.channels,
                    .b = forward_.data(),
                    .b_row = kPanel,
                    .c = out,
                    .c_row = out_.channels,
                    .epilogue = Epilogue::kBiasRelu,
                    .bias = bias_.data(),
                    .segments = layer_.kernel,
                    .a_segment = in_.width * in_.channels,
                    .b_panel = patch() * kPanel,
                    .groups = out_.height,
                    .a_group = layer_.stride * in_.width * in_.channels,
                    .c_group = out_.width * out_.channels});
}

void Convolution::add_gradient(const float* in, const float* delta,
                               float* gradient) const noexcept {
  const std::int64_t line = in_.width * in_.channels;
  for_blocks_of_lines(out_, [&](std::int64_t first, std::int64_t lines) {
    kernels_.product({.m = run(),
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
  const float one = 1.0F;
  kernels_.product({.m = 1,
                    .n = out_.channels,
                    .depth = out_.pixels(),
                    .a = &one,
                    .a_step = 0,
                    .b = delta,
                    .b_row = out_.channels,
                    .c = gradient + patch() * out_.channels,
                    .accumulate = true});
}

void Convolution::unpack_gradient(const float* gradient, std::span<float> weight,
                                  std::span<float> bias) const noexcept {
  float* to = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    *to++ = gradient[(y * run() + x * in_.channels + c) * out_.channels + o];
  });
  std::copy_n(gradient + patch() * out_.channels, bias.size(), bias.begin());
}

void Convolution::input_gradient(const float* delta, float* d_in) const noexcept {
  std::fill_n(d_in, in_.size(), 0.0F);
  const std::int64_t width = panels(in_.channels) * out_.channels * kPanel;
  for (std::int64_t y = 0; y < layer_.kernel; ++y) {
    for (std::int64_t x = 0; x < layer_.kernel; ++x) {
      kernels_.product({.m = out_.width,
                        .n = in_.channels,
                        .depth = out_.channels,
                        .a = delta,
                        .a_row = out_.channels,
                        .b = backward_.data() + (y * layer_.kernel + x) * width,
                        .b_row = kPanel,
                        .c = d_in + (y * in_.width + x) * in_.channels,
                        .c_row = layer_.stride * in_.channels,
                        .b_panel = out_.channels * kPanel,
                        .groups = out_.height,
                        .a_group = out_.width * out_.channels,
                        .c_group = layer_.stride * in_.width * in_.channels,
                        .accumulate = true});
    }
  }
}

}  // namespace shoal::learn
