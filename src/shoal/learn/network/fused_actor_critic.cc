#include "shoal/learn/network/fused_actor_critic.h"

#include <algorithm>

#include "shoal/learn/network/recurrent_actor_critic.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;  // when nothing is kept: activations stay in the cache

AlignedFloats floats(std::int64_t n) { return AlignedFloats(static_cast<std::size_t>(n)); }

void add(float* x, const float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] += y[i];
}

}  // namespace

FusedActorCritic::FusedActorCritic(const Network& network, const Parameters& parameters,
                                   const MlpKernels& kernels, int threads)
    : network_(network),
      parameters_(parameters),
      kernels_(kernels),
      input_(network, parameters, kernels, threads),
      trunk_(make_chain(network.trunk)),
      actor_(make_chain(network.actor)),
      critic_(make_chain(network.critic)) {
  std::int64_t largest = 0;
  for (const auto* chain : {&trunk_, &actor_, &critic_}) {
    for (const auto& d : *chain) {
      largest =
          std::max({largest, d.layer.out * padded(d.layer.in), d.layer.in * padded(d.layer.out)});
      largest = std::max(largest, padded(d.layer.out));
    }
  }
  scratch_ = floats(largest);
  parameters_changed();
}

FusedActorCritic::Chain FusedActorCritic::make_chain(const Mlp& mlp) const {
  Chain chain;
  for (const auto& layer : mlp) {
    Dense dense;
    dense.layer = layer;
    dense.transposed = floats(layer.in * padded(layer.out));
    dense.straight = floats(layer.out * padded(layer.in));
    dense.bias = floats(padded(layer.out));
    chain.push_back(std::move(dense));
  }
  return chain;
}

void FusedActorCritic::reserve(std::int64_t rows) {
  if (rows <= capacity_) return;
  capacity_ = rows;
  for (auto* chain : {&trunk_, &actor_, &critic_}) {
    for (auto& dense : *chain) {
      dense.output = floats(rows * padded(dense.layer.out));
      dense.delta = floats(rows * padded(dense.layer.out));
    }
  }
  if (!trunk_.empty()) from_critic_ = floats(rows * padded(trunk_.back().layer.out));
  if (!input_.has_images()) return;
  const std::int64_t width = padded(network_.features);
  if (trunk_.empty()) from_critic_ = floats(rows * width);
  d_input_ = floats(rows * width);
}

void FusedActorCritic::parameters_changed() {
  input_.parameters_changed();
  for (auto* chain : {&trunk_, &actor_, &critic_}) {
    for (auto& dense : *chain) {
      const auto [in, out] = std::pair(dense.layer.in, dense.layer.out);
      const float* weight = parameters_.values(dense.layer.weight).data();
      float* transposed = dense.transposed.data();
      for (std::int64_t i = 0; i < in; ++i) {
        for (std::int64_t o = 0; o < out; ++o) transposed[i * padded(out) + o] = weight[o * in + i];
      }
      for (std::int64_t o = 0; o < out; ++o) {
        std::copy_n(weight + o * in, in, dense.straight.data() + o * padded(in));
      }
      std::ranges::copy(parameters_.values(dense.layer.bias), dense.bias.data());
    }
  }
}

Epilogue FusedActorCritic::activation() const noexcept {
  return network_.activation == Activation::kTanh ? Epilogue::kBiasTanh : Epilogue::kBiasRelu;
}

Epilogue FusedActorCritic::slope() const noexcept {
  return network_.activation == Activation::kTanh ? Epilogue::kTimesTanhSlope
                                                  : Epilogue::kTimesReluSlope;
}

FusedActorCritic::Rows FusedActorCritic::run(Chain& chain, Rows x, std::int64_t rows) const {
  for (auto& dense : chain) {
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
                      .epilogue = dense.layer.activated ? activation() : Epilogue::kBias,
                      .bias = dense.bias.data()});
    x = {dense.output.data(), width};
  }
  return x;
}

void FusedActorCritic::copy_out(const Chain& chain, std::int64_t rows, std::span<float> out) const {
  const Dense& last = chain.back();
  const std::int64_t width = last.layer.out;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(last.output.data() + r * padded(width), width, out.data() + r * width);
  }
}

void FusedActorCritic::run_all(Rows x, std::int64_t rows, std::span<float> head,
                               std::span<float> value) {
  x = run(trunk_, x, rows);
  if (!head.empty()) {
    run(actor_, x, rows);
    copy_out(actor_, rows, head);
  }
  run(critic_, x, rows);
  copy_out(critic_, rows, value);
}

void FusedActorCritic::forward(std::span<const shm::TensorView> obs, std::span<float> /*memory*/,
                               std::span<float> head, std::span<float> value) {
  const auto all = static_cast<std::int64_t>(value.size());
  const auto width = static_cast<std::size_t>(network_.head);
  reserve(std::min(all, kRowsAtOnce));
  for (std::int64_t from = 0; from < all; from += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, all - from);
    const auto first = static_cast<std::size_t>(from);
    const auto n = static_cast<std::size_t>(rows);
    run_all(input_.forward(obs, from, rows), rows,
            head.empty() ? head : head.subspan(first * width, n * width), value.subspan(first, n));
  }
}

void FusedActorCritic::forward_train(std::span<const shm::TensorView> obs,
                                     const Sequences& sequences, std::span<float> head,
                                     std::span<float> value) {
  rows_ = static_cast<std::int64_t>(sequences.rows.size());
  reserve(rows_);
  run_all(input_.forward_train(obs, sequences.rows), rows_, head, value);
}

void FusedActorCritic::take_delta(Chain& chain, std::int64_t rows,
                                  std::span<const float> derivative) const {
  Dense& last = chain.back();
  const std::int64_t width = last.layer.out;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(derivative.data() + r * width, width, last.delta.data() + r * padded(width));
  }
}

void FusedActorCritic::weight_gradient(const Dense& dense, Rows x, std::int64_t rows,
                                       std::span<float> gradient) {
  const std::int64_t in = dense.layer.in;
  const std::int64_t out = dense.layer.out;
  const std::int64_t padded_out = padded(out);
  float* to = gradient.data() + parameters_[dense.layer.weight].offset;
  float* made = scratch_.data();
  // Either delta^T x, or its transpose x^T delta: the one that wastes less of its last vector.
  if (out * padded(in) <= in * padded_out) {
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
                      .c = made,
                      .c_row = padded_out});
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) to[o * in + i] = made[i * padded_out + o];
    }
  }
  kernels_.column_sums(dense.delta.data(), rows, padded_out, padded_out, made);
  std::copy_n(made, out, gradient.data() + parameters_[dense.layer.bias].offset);
}

void FusedActorCritic::back(Chain& chain, Rows x, std::int64_t rows, std::span<float> gradient) {
  for (std::size_t l = chain.size(); l-- > 0;) {
    const Dense& dense = chain[l];
    if (l == 0) {
      weight_gradient(dense, x, rows, gradient);
      return;
    }
    Dense& below = chain[l - 1];
    const std::int64_t width = padded(below.layer.out);
    weight_gradient(dense, {below.output.data(), width}, rows, gradient);
    back_through(dense, below, rows, below.delta.data());
  }
}

void FusedActorCritic::back_through(const Dense& dense, const Dense& below, std::int64_t rows,
                                    float* delta) {
  const std::int64_t width = padded(below.layer.out);
  kernels_.product({.m = rows,
                    .n = width,
                    .depth = dense.layer.out,
                    .a = dense.delta.data(),
                    .a_row = padded(dense.layer.out),
                    .b = dense.straight.data(),
                    .b_row = width,
                    .c = delta,
                    .c_row = width,
                    .epilogue = slope(),
                    .activation = below.output.data(),
                    .activation_row = width});
}

void FusedActorCritic::back_to_trunk(std::int64_t rows) {
  Dense& below = trunk_.back();
  const std::int64_t width = padded(below.layer.out);
  // The slope applies to each part of the sum alike.
  back_through(actor_.front(), below, rows, below.delta.data());
  back_through(critic_.front(), below, rows, from_critic_.data());
  add(below.delta.data(), from_critic_.data(), rows * width);
}

void FusedActorCritic::back_to_input(const Dense& dense, std::int64_t rows, float* delta) const {
  const std::int64_t width = padded(dense.layer.in);
  kernels_.product({.m = rows,
                    .n = width,
                    .depth = dense.layer.out,
                    .a = dense.delta.data(),
                    .a_row = padded(dense.layer.out),
                    .b = dense.straight.data(),
                    .b_row = width,
                    .c = delta,
                    .c_row = width});
}

void FusedActorCritic::back_to_images(std::int64_t rows, std::span<float> gradient) {
  if (trunk_.empty()) {
    back_to_input(actor_.front(), rows, d_input_.data());
    back_to_input(critic_.front(), rows, from_critic_.data());
    add(d_input_.data(), from_critic_.data(), rows * padded(network_.features));
  } else {
    back_to_input(trunk_.front(), rows, d_input_.data());
  }
  input_.backward(d_input_.data(), gradient);
}

void FusedActorCritic::backward(std::span<const float> d_head, std::span<const float> d_value,
                                std::span<float> gradient) {
  const Rows input = input_.kept();
  const Rows features =
      trunk_.empty() ? input : Rows{trunk_.back().output.data(), padded(trunk_.back().layer.out)};
  take_delta(actor_, rows_, d_head);
  take_delta(critic_, rows_, d_value);
  back(actor_, features, rows_, gradient);
  back(critic_, features, rows_, gradient);
  if (!trunk_.empty()) {
    back_to_trunk(rows_);
    back(trunk_, input, rows_, gradient);
  }
  if (input_.has_images()) back_to_images(rows_, gradient);
  if (network_.log_std >= 0) {
    const auto& log_std = parameters_[static_cast<std::size_t>(network_.log_std)];
    std::fill_n(gradient.data() + log_std.offset, log_std.numel(), 0.0F);
  }
}

std::unique_ptr<ActorCritic> make_fused_actor_critic(const Network& network,
                                                     const Parameters& parameters) {
  if (!network.lstms.empty())
    return std::make_unique<RecurrentActorCritic>(network, parameters, mlp_kernels().front());
  return std::make_unique<FusedActorCritic>(network, parameters, mlp_kernels().front());
}

}  // namespace shoal::learn
