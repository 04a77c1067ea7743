#include "shoal/learn/network/convolution.h"

#include <algorithm>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

template <class Element>
constexpr Element kOnes = 1.0F;
template <>
constexpr Bfloat16Pair kOnes<Bfloat16Pair> = bfloat16_pair(1.0F, 1.0F);

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// Number `row` of those that the rows of `panel` make, in its column.
void put(float* panel, std::int64_t row, std::int64_t column, float x) {
  panel[row * kPanel + column] = x;
}
void put(Bfloat16Pair* panel, std::int64_t row, std::int64_t column, float x) {
  Bfloat16Pair& pair = panel[row / 2 * kPanel + column];
  const Bfloat16Pair bits = to_bfloat16(x);
  pair = row % 2 == 0 ? (pair & 0xffff0000U) | bits : (pair & 0xffffU) | bits << 16;
}

void multiply(const MlpKernels& kernels, const Product& p) { kernels.product(p); }
void multiply(const MlpKernels& kernels, const PairProduct& p) { kernels.pair_product(p); }

}  // namespace

ImageShape output_of(const Layer& layer, const ImageShape& in) {
  return {padded(layer.out), (in.height - layer.kernel) / layer.stride + 1,
          (in.width - layer.kernel) / layer.stride + 1};
}

template <class Element>
ConvolutionOf<Element>::ConvolutionOf(const Layer& layer, const ImageShape& in,
                                      const MlpKernels& kernels, float scale)
    : layer_(layer),
      in_(in),
      out_(output_of(layer, in)),
      phases_(phases_of(layer_, in_, out_)),
      kernels_(kernels),
      scale_(scale),
      forward_(index(panels(out_.channels) * patch() / kNumbers * kPanel)),
      bias_(index(out_.channels)) {
  SHOAL_CHECK(layer.kernel > 0 && in.channels >= layer.in, "a convolution of such images");
  SHOAL_CHECK(run() % kNumbers == 0 && in.width * in.channels % kNumbers == 0 &&
                  layer.stride * in.channels % kNumbers == 0,
              "pairs that no line and no patch cuts");
}

template <class Element>
void ConvolutionOf<Element>::pack_forward(std::span<const float> weight,
                                          std::span<const float> bias) noexcept {
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t row = y * run() + x * in_.channels + c;
    put(forward_.data() + o / kPanel * patch() / kNumbers * kPanel, row, o % kPanel,
        scale_ * *from++);
  });
  std::ranges::copy(bias, bias_.data());
}

template <class Element>
auto ConvolutionOf<Element>::phases_of(const Layer& layer, const ImageShape& in,
                                       const ImageShape& out) -> std::vector<Phase> {
  const auto every = [&](std::int64_t from, std::int64_t end) {
    return std::max<std::int64_t>(0, (end - from + layer.stride - 1) / layer.stride);
  };
  std::vector<Phase> phases;
  std::int64_t weights = 0;
  for (std::int64_t y = 0; y < layer.stride; ++y) {
    for (std::int64_t x = 0; x < layer.stride; ++x) {
      const Phase phase{.y = y,
                        .x = x,
                        .width = every(x, in.width),
                        .kernel_y = every(y, layer.kernel),
                        .kernel_x = every(x, layer.kernel),
                        .weights = weights};
      phases.push_back(phase);
      weights +=
          phase.kernel_y * phase.kernel_x * panels(in.channels) * out.channels / kNumbers * kPanel;
    }
  }
  return phases;
}

template <class Element>
void ConvolutionOf<Element>::pack_backward(std::span<const float> weight) noexcept {
  const std::int64_t width = panels(in_.channels);
  backward_.room(layer_.kernel * layer_.kernel * width * out_.channels / kNumbers * kPanel);
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const Phase& phase = phases_[index(y % layer_.stride * layer_.stride + x % layer_.stride)];
    const std::int64_t rows = phase.kernel_y * phase.kernel_x * out_.channels;
    const std::int64_t place = (phase.kernel_y - 1 - y / layer_.stride) * phase.kernel_x +
                               (phase.kernel_x - 1 - x / layer_.stride);
    put(backward_.data() + phase.weights + c / kPanel * rows / kNumbers * kPanel,
        place * out_.channels + o, c % kPanel, scale_ * *from++);
  });
}

template <class Element>
void ConvolutionOf<Element>::forward(const Element* in, float* out) const noexcept {
  multiply(kernels_,
           ProductOf<Element>{.m = out_.width,
                              .n = out_.channels,
                              .depth = run() / kNumbers,
                              .a = in,
                              .a_row = layer_.stride * in_.channels / kNumbers,
                              .b = forward_.data(),
                              .b_row = kPanel,
                              .c = out,
                              .c_row = out_.channels,
                              .epilogue = Epilogue::kBiasRelu,
                              .bias = bias_.data(),
                              .segments = layer_.kernel,
                              .a_segment = in_.width * in_.channels / kNumbers,
                              .b_panel = patch() / kNumbers * kPanel,
                              .groups = out_.height,
                              .a_group = layer_.stride * in_.width * in_.channels / kNumbers,
                              .c_group = out_.width * out_.channels});
}

template <class Element>
void ConvolutionOf<Element>::add_gradient(const Element* in, const Element* delta,
                                          float* gradient) const noexcept {
  const std::int64_t line = in_.width * in_.channels;
  for_blocks_of_lines(out_, [&](std::int64_t first, std::int64_t lines) {
    multiply(kernels_, ProductOf<Element>{.m = run(),
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
  multiply(kernels_, ProductOf<Element>{.m = 1,
                                        .n = out_.channels,
                                        .depth = out_.pixels(),
                                        .a = &kOnes<Element>,
                                        .a_step = 0,
                                        .b = delta,
                                        .b_row = out_.channels,
                                        .c = gradient + patch() * out_.channels,
                                        .accumulate = true});
}

template <class Element>
void ConvolutionOf<Element>::unpack_gradient(const float* gradient, std::span<float> weight,
                                             std::span<float> bias) const noexcept {
  float* to = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    *to++ = scale_ * gradient[(y * run() + x * in_.channels + c) * out_.channels + o];
  });
  std::copy_n(gradient + patch() * out_.channels, bias.size(), bias.begin());
}

template <class Element>
void ConvolutionOf<Element>::input_gradient(const Element* delta, Element* bordered,
                                            float* d_in) const noexcept {
  const std::int64_t channels = out_.channels / kNumbers;
  Element* to = bordered + (reach() - 1) * channels;
  for (std::int64_t y = 0; y < out_.height; ++y) {
    std::copy_n(delta + y * out_.width * channels, out_.width * channels, to);
    to += bordered_width() * channels;
  }
  if (layer_.kernel < layer_.stride || (in_.height - layer_.kernel) % layer_.stride != 0)
    std::fill_n(d_in, in_.size(), 0.0F);  // no output reads some of it
  for (const Phase& phase : phases_) {
    if (phase.kernel_y == 0 || phase.kernel_x == 0) continue;
    // Lines that kernel_y lines of outputs read are one product; at the border fewer do.
    const std::int64_t whole = phase.kernel_y - 1, end = out_.height + phase.kernel_y - 1;
    for (std::int64_t line = 0, next = 0; line < end; line = next) {
      next = line == whole ? std::max(out_.height, line + 1) : line + 1;
      lines_of_input_gradient(phase, line, next, bordered, d_in);
    }
  }
}

template <class Element>
void ConvolutionOf<Element>::lines_of_input_gradient(const Phase& phase, std::int64_t first,
                                                     std::int64_t last, const Element* bordered,
                                                     float* d_in) const noexcept {
  const std::int64_t channels = out_.channels / kNumbers;
  const std::int64_t line = bordered_width() * channels;
  // Line k is read by the lines k - y of outputs, for places y of the kernel.
  const std::int64_t top = std::max<std::int64_t>(0, first - phase.kernel_y + 1);
  const std::int64_t bottom = std::min(first, out_.height - 1);
  const std::int64_t depth = phase.kernel_x * channels;
  const std::int64_t left_out = phase.kernel_y - 1 - (first - top);
  multiply(kernels_,
           ProductOf<Element>{
               .m = phase.width,
               .n = in_.channels,
               .depth = depth,
               .a = bordered + top * line + (reach() - phase.kernel_x) * channels,
               .a_row = channels,
               .b = backward_.data() + phase.weights + left_out * depth * kPanel,
               .b_row = kPanel,
               .c = d_in + ((first * layer_.stride + phase.y) * in_.width + phase.x) * in_.channels,
               .c_row = layer_.stride * in_.channels,
               .segments = bottom - top + 1,
               .a_segment = line,
               .b_panel = phase.kernel_y * depth * kPanel,
               .groups = last - first,
               .a_group = line,
               .c_group = layer_.stride * in_.width * in_.channels});
}

template class ConvolutionOf<float>;
template class ConvolutionOf<Bfloat16Pair>;

}  // namespace shoal::learn
