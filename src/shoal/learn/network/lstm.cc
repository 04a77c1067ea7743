#include "shoal/learn/network/lstm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/learn/network/mlp_layers.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kGates = 4;

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace

LstmLayer add_lstm(Parameters& parameters, const std::string& name, std::int64_t in,
                   const Recurrence& recurrence) {
  const std::int64_t size = recurrence.lstm_size;
  return {.weight_ih = parameters.add(name + ".weight_ih_l0", {kGates * size, in}),
          .weight_hh = parameters.add(name + ".weight_hh_l0", {kGates * size, size}),
          .bias_ih = parameters.add(name + ".bias_ih_l0", {kGates * size}),
          .bias_hh = parameters.add(name + ".bias_hh_l0", {kGates * size}),
          .in = in,
          .size = size};
}

void initialize_lstm(const LstmLayer& layer, Parameters& parameters, bool orthogonal_init,
                     const Philox& random) {
  if (orthogonal_init) {
    const std::int64_t out = kGates * layer.size;
    orthogonal(parameters.values(layer.weight_ih), out, layer.in, 1.0, random, layer.weight_ih);
    orthogonal(parameters.values(layer.weight_hh), out, layer.size, 1.0, random, layer.weight_hh);
    for (const std::size_t bias : {layer.bias_ih, layer.bias_hh})
      std::ranges::fill(parameters.values(bias), 0.0F);
    return;
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(layer.size));
  for (const std::size_t which : {layer.weight_ih, layer.weight_hh, layer.bias_ih, layer.bias_hh})
    uniform_within(parameters.values(which), bound, random, which);
}

Lstm::Lstm(const LstmLayer& layer, const Parameters& parameters, const MlpKernels& kernels)
    : layer_(layer),
      parameters_(parameters),
      kernels_(kernels),
      width_(padded(layer.size)),
      input_(index(layer.in * kGates * width_)),
      hidden_(index(layer.size * kGates * width_)),
      bias_(index(kGates * width_)),
      straight_(index(kGates * width_ * std::max(width_, padded(layer.in)))),
      scratch_(index(kGates * width_ * std::max(width_, padded(layer.in)))) {
  parameters_changed();
}

void Lstm::parameters_changed() {
  const auto transpose = [&](std::size_t weight, std::int64_t in, AlignedFloats& to) {
    const float* from = parameters_.values(weight).data();
    for (std::int64_t gate = 0; gate < kGates; ++gate)
      kernels_.transpose(from + gate * layer_.size * in, layer_.size, in, in,
                         to.data() + gate * width_, kGates * width_);
  };
  transpose(layer_.weight_ih, layer_.in, input_);
  transpose(layer_.weight_hh, layer_.size, hidden_);
  const auto of_input = parameters_.values(layer_.bias_ih);
  const auto of_hidden = parameters_.values(layer_.bias_hh);
  for (std::int64_t gate = 0; gate < kGates; ++gate) {
    for (std::int64_t k = 0; k < layer_.size; ++k) {
      const std::size_t at = index(gate * layer_.size + k);
      bias_.data()[gate * width_ + k] = of_input[at] + of_hidden[at];
    }
  }
}

void Lstm::reserve(std::int64_t rows, std::int64_t sequences) {
  if (rows > capacity_) {
    capacity_ = rows;
    for (AlignedFloats* of_gates : {&gates_, &d_gates_})
      *of_gates = AlignedFloats(index(rows * kGates * width_));
    for (AlignedFloats* of_cells :
         {&before_, &cell_, &squashed_, &output_, &d_output_, &output_before_})
      *of_cells = AlignedFloats(index(rows * width_));
  }
  if (sequences <= sequence_capacity_) return;
  sequence_capacity_ = sequences;
  d_cell_ = AlignedFloats(index(sequences * width_));
}

FloatRows Lstm::forward(FloatRows x, std::span<const std::int32_t> counts, const float* memory,
                        std::int64_t stride) {
  counts_.assign(counts.begin(), counts.end());
  rows_ = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  reserve(rows_, counts.front());
  const std::int64_t sums = kGates * width_;
  kernels_.product({.m = rows_,
                    .n = sums,
                    .depth = layer_.in,
                    .a = x.data,
                    .a_row = x.stride,
                    .b = input_.data(),
                    .b_row = sums,
                    .c = gates_.data(),
                    .c_row = sums,
                    .epilogue = Epilogue::kBias,
                    .bias = bias_.data()});
  for (std::int64_t s = 0; s < counts.front(); ++s) {
    std::copy_n(memory + s * stride, layer_.size, output_before_.data() + s * width_);
    std::copy_n(memory + s * stride + layer_.size, layer_.size, before_.data() + s * width_);
  }
  std::int64_t from = 0;  // the step's first row
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const std::int64_t rows = counts[k];
    if (k > 0) {
      const std::int64_t last = from - counts[k - 1];
      std::copy_n(output_.data() + last * width_, rows * width_,
                  output_before_.data() + from * width_);
      std::copy_n(cell_.data() + last * width_, rows * width_, before_.data() + from * width_);
    }
    kernels_.product({.m = rows,
                      .n = sums,
                      .depth = layer_.size,
                      .a = output_before_.data() + from * width_,
                      .a_row = width_,
                      .b = hidden_.data(),
                      .b_row = sums,
                      .c = gates_.data() + from * sums,
                      .c_row = sums,
                      .accumulate = true});
    kernels_.lstm_step({.rows = rows,
                        .width = width_,
                        .gates = gates_.data() + from * sums,
                        .before = before_.data() + from * width_,
                        .cell = cell_.data() + from * width_,
                        .squashed = squashed_.data() + from * width_,
                        .output = output_.data() + from * width_});
    from += rows;
  }
  return {output_.data(), width_};
}

FloatRows Lstm::step(FloatRows x, std::int64_t rows, float* memory, std::int64_t stride) {
  const auto count = static_cast<std::int32_t>(rows);
  const FloatRows output = forward(x, {&count, 1}, memory, stride);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(output.row(r), layer_.size, memory + r * stride);
    std::copy_n(cell_.data() + r * width_, layer_.size, memory + r * stride + layer_.size);
  }
  return output;
}

void Lstm::copy_straight(std::size_t weight, std::int64_t in, float* to) const {
  const float* from = parameters_.values(weight).data();
  for (std::int64_t gate = 0; gate < kGates; ++gate) {
    for (std::int64_t k = 0; k < layer_.size; ++k)
      std::copy_n(from + (gate * layer_.size + k) * in, in, to + (gate * width_ + k) * padded(in));
  }
}

void Lstm::back_through_time() {
  const std::int64_t sums = kGates * width_;
  std::fill_n(straight_.data(), sums * width_, 0.0F);
  copy_straight(layer_.weight_hh, layer_.size, straight_.data());
  std::fill_n(d_cell_.data(), counts_.front() * width_, 0.0F);
  std::int64_t from = rows_;
  for (std::size_t k = counts_.size(); k-- > 0;) {
    const std::int64_t rows = counts_[k];
    from -= rows;
    kernels_.lstm_step_back({.rows = rows,
                             .width = width_,
                             .gates = gates_.data() + from * sums,
                             .before = before_.data() + from * width_,
                             .squashed = squashed_.data() + from * width_,
                             .d_output = d_output_.data() + from * width_,
                             .d_cell = d_cell_.data(),
                             .d_gates = d_gates_.data() + from * sums});
    if (k == 0) return;
    kernels_.product({.m = rows,
                      .n = width_,
                      .depth = sums,
                      .a = d_gates_.data() + from * sums,
                      .a_row = sums,
                      .b = straight_.data(),
                      .b_row = width_,
                      .c = d_output_.data() + (from - counts_[k - 1]) * width_,
                      .c_row = width_,
                      .accumulate = true});
  }
}

void Lstm::weight_gradient(std::size_t weight, std::int64_t in, FloatRows x,
                           std::span<float> gradient) {
  const std::int64_t sums = kGates * width_;
  float* to = gradient.data() + parameters_[weight].offset;
  float* made = scratch_.data();
  // Either d_gates^T x, or its transpose: the one that wastes less of its last vector.
  if (kGates * layer_.size * padded(in) <= in * sums) {
    kernels_.product({.m = sums,
                      .n = padded(in),
                      .depth = rows_,
                      .a = d_gates_.data(),
                      .a_row = 1,
                      .a_step = sums,
                      .b = x.data,
                      .b_row = x.stride,
                      .c = made,
                      .c_row = padded(in)});
    for (std::int64_t gate = 0; gate < kGates; ++gate) {
      for (std::int64_t k = 0; k < layer_.size; ++k, to += in)
        std::copy_n(made + (gate * width_ + k) * padded(in), in, to);
    }
    return;
  }
  kernels_.product({.m = in,
                    .n = sums,
                    .depth = rows_,
                    .a = x.data,
                    .a_row = 1,
                    .a_step = x.stride,
                    .b = d_gates_.data(),
                    .b_row = sums,
                    .c = made,
                    .c_row = sums});
  for (std::int64_t gate = 0; gate < kGates; ++gate)
    kernels_.transpose(made + gate * width_, in, layer_.size, sums, to + gate * layer_.size * in,
                       in);
}

void Lstm::backward(FloatRows x, std::span<float> gradient) {
  back_through_time();
  weight_gradient(layer_.weight_ih, layer_.in, x, gradient);
  weight_gradient(layer_.weight_hh, layer_.size, {output_before_.data(), width_}, gradient);
  const std::int64_t sums = kGates * width_;
  kernels_.column_sums(d_gates_.data(), rows_, sums, sums, scratch_.data());
  for (const std::size_t bias : {layer_.bias_ih, layer_.bias_hh}) {
    float* to = gradient.data() + parameters_[bias].offset;
    for (std::int64_t gate = 0; gate < kGates; ++gate)
      std::copy_n(scratch_.data() + gate * width_, layer_.size, to + gate * layer_.size);
  }
}

void Lstm::backward_input(float* to) {
  const std::int64_t sums = kGates * width_;
  std::fill_n(straight_.data(), sums * padded(layer_.in), 0.0F);
  copy_straight(layer_.weight_ih, layer_.in, straight_.data());
  kernels_.product({.m = rows_,
                    .n = padded(layer_.in),
                    .depth = sums,
                    .a = d_gates_.data(),
                    .a_row = sums,
                    .b = straight_.data(),
                    .b_row = padded(layer_.in),
                    .c = to,
                    .c_row = padded(layer_.in)});
}

}  // namespace shoal::learn
