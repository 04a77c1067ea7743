#include "shoal/learn/network/mlp_chain.h"

#include <algorithm>

namespace shoal::learn {
namespace {

AlignedFloats floats(std::int64_t n) { return AlignedFloats(static_cast<std::size_t>(n)); }

// [rows][columns] to [columns][row_stride], in squares that stay in the cache.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to,
               std::int64_t row_stride) {
  constexpr std::int64_t kSquare = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    const std::int64_t r1 = std::min(r0 + kSquare, rows);
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = r0; r < r1; ++r) to[c * row_stride + r] = from[r * columns + c];
    }
  }
}

/// Rows of `width` floats that lie end to end, to rows of padded(width).
void copy_padded(std::span<const float> from, std::int64_t width, float* to) {
  const auto rows = static_cast<std::int64_t>(from.size()) / width;
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(from.data() + r * width, width, to + r * padded(width));
}

}  // namespace

void FloatRows::copy_to(std::span<float> to, std::int64_t rows, std::int64_t width) const {
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(row(r), width, to.data() + r * width);
}

MlpChain::MlpChain(const Mlp& mlp, Activation activation, const Parameters& parameters,
                   const MlpKernels& kernels)
    : parameters_(parameters),
      kernels_(kernels),
      activation_(activation == Activation::kTanh ? Epilogue::kBiasTanh : Epilogue::kBiasRelu),
      slope_(activation == Activation::kTanh ? Epilogue::kTimesTanhSlope
                                             : Epilogue::kTimesReluSlope) {
  std::int64_t largest = 0;
  for (const Layer& layer : mlp) {
    Dense dense;
    dense.layer = layer;
    dense.transposed = floats(layer.in * padded(layer.out));
    dense.straight = floats(layer.out * padded(layer.in));
    dense.bias = floats(padded(layer.out));
    layers_.push_back(std::move(dense));
    largest = std::max(
        {largest, layer.out * padded(layer.in), layer.in * padded(layer.out), padded(layer.out)});
  }
  scratch_ = floats(largest);
  parameters_changed();
}

void MlpChain::parameters_changed() {
  for (Dense& dense : layers_) {
    const auto [in, out] = std::pair(dense.layer.in, dense.layer.out);
    const float* weight = parameters_.values(dense.layer.weight).data();
    transpose(weight, out, in, dense.transposed.data(), padded(out));
    copy_padded({weight, static_cast<std::size_t>(in * out)}, in, dense.straight.data());
    std::ranges::copy(parameters_.values(dense.layer.bias), dense.bias.data());
  }
}

void MlpChain::reserve(std::int64_t rows) {
  if (rows <= capacity_) return;
  capacity_ = rows;
  for (Dense& dense : layers_) {
    dense.output = floats(rows * padded(dense.layer.out));
    dense.delta = floats(rows * padded(dense.layer.out));
  }
}

FloatRows MlpChain::forward(FloatRows x, std::int64_t rows) {
  reserve(rows);
  for (Dense& dense : layers_) {
    const std::int64_t width = padded(dense.layer.out);
    kernels_.product({.m = rows,
                      .n = width,
                      .depth = dense.layer.in,
                      .a = x.data,
                      .a_row = x.stride,
                      .b = dense.transposed.data(),
                      .b_row = width,
                      .c = dense.output.data(),
                      .c_row = width,
                      .epilogue = dense.layer.activated ? activation_ : Epilogue::kBias,
                      .bias = dense.bias.data()});
    x = {dense.output.data(), width};
  }
  return x;
}

void MlpChain::take_delta(std::span<const float> derivative) noexcept {
  copy_padded(derivative, layers_.back().layer.out, delta());
}

void MlpChain::weight_gradient(const Dense& dense, FloatRows x, std::int64_t rows,
                               std::span<float> gradient) {
  const std::int64_t in = dense.layer.in;
  const std::int64_t out = dense.layer.out;
  const std::int64_t padded_out = padded(out);
  float* to = gradient.data() + parameters_[dense.layer.weight].offset;
  // Either delta^T x, or its transpose x^T delta: the one that wastes less of its last vector.
  if (out * padded(in) <= in * padded_out) {
    const bool direct = in == padded(in);
    float* made = direct ? to : scratch_.data();
    kernels_.product({.m = out,
                      .n = padded(in),
                      .depth = rows,
                      .a = dense.delta.data(),
                      .a_row = 1,
                      .a_step = padded_out,
                      .b = x.data,
                      .b_row = x.stride,
                      .c = made,
                      .c_row = padded(in)});
    if (!direct)
      for (std::int64_t o = 0; o < out; ++o) std::copy_n(made + o * padded(in), in, to + o * in);
  } else {
    kernels_.product({.m = in,
                      .n = padded_out,
                      .depth = rows,
                      .a = x.data,
                      .a_row = 1,
                      .a_step = x.stride,
                      .b = dense.delta.data(),
                      .b_row = padded_out,
                      .c = scratch_.data(),
                      .c_row = padded_out});
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) to[o * in + i] = scratch_.data()[i * padded_out + o];
  }
  kernels_.column_sums(dense.delta.data(), rows, padded_out, padded_out, scratch_.data());
  std::copy_n(scratch_.data(), out, gradient.data() + parameters_[dense.layer.bias].offset);
}

void MlpChain::back_through(const Dense& dense, std::int64_t rows, float* to,
                            const FloatRows* activated) const {
  const std::int64_t width = padded(dense.layer.in);
  kernels_.product({.m = rows,
                    .n = width,
                    .depth = dense.layer.out,
                    .a = dense.delta.data(),
                    .a_row = padded(dense.layer.out),
                    .b = dense.straight.data(),
                    .b_row = width,
                    .c = to,
                    .c_row = width,
                    .epilogue = activated != nullptr ? slope_ : Epilogue::kNone,
                    .activation = activated != nullptr ? activated->data : nullptr,
                    .activation_row = activated != nullptr ? activated->stride : 0});
}

void MlpChain::backward(FloatRows x, std::int64_t rows, std::span<float> gradient) {
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const FloatRows below =
        l == 0 ? x : FloatRows{layers_[l - 1].output.data(), padded(layers_[l].layer.in)};
    if (!gradient.empty()) weight_gradient(layers_[l], below, rows, gradient);
    if (l > 0) back_through(layers_[l], rows, layers_[l - 1].delta.data(), &below);
  }
}

void MlpChain::backward_input(std::int64_t rows, float* to,
                              const FloatRows* activated_input) const {
  back_through(layers_.front(), rows, to, activated_input);
}

void MlpChain::backward_shared_input(const MlpChain& first, const MlpChain& second,
                                     std::int64_t rows, float* to, AlignedFloats& scratch,
                                     const FloatRows* activated_input) {
  const std::int64_t size = rows * padded(first.layers_.front().layer.in);
  // The slope applies to each part of the sum alike.
  first.backward_input(rows, to, activated_input);
  second.backward_input(rows, scratch.room(size), activated_input);
  first.kernels_.add(to, scratch.data(), size);
}

}  // namespace shoal::learn
