#include "shoal/learn/network/recurrent_actor_critic.h"

#include <algorithm>

namespace shoal::learn {
namespace {

void copy_out(FloatRows from, std::int64_t rows, std::int64_t width, std::span<float> to) {
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(from.row(r), width, to.data() + r * width);
}

void take_delta(MlpChain& chain, std::int64_t rows, std::int64_t width,
                std::span<const float> derivative) {
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(derivative.data() + r * width, width, chain.delta() + r * chain.delta_stride());
}

// Room for so many floats; what it held is lost.
float* room(AlignedFloats& floats, std::int64_t size) {
  if (static_cast<std::int64_t>(floats.size()) < size)
    floats = AlignedFloats(static_cast<std::size_t>(size));
  return floats.data();
}

}  // namespace

RecurrentActorCritic::RecurrentActorCritic(const Network& network, const Parameters& parameters,
                                           const MlpKernels& kernels, int threads)
    : network_(network),
      parameters_(parameters),
      input_(network, parameters, kernels, threads),
      actor_(network.actor, network.activation, parameters, kernels),
      critic_(network.critic, network.activation, parameters, kernels),
      d_(2) {
  for (const LstmLayer& layer : network.lstms) lstms_.emplace_back(layer, parameters, kernels);
}

std::size_t RecurrentActorCritic::memory_size() const noexcept {
  return lstms_.size() * static_cast<std::size_t>(lstms_.front().memory_size());
}

std::int64_t RecurrentActorCritic::critic_memory() const noexcept {
  return is_shared() ? 0 : lstms_.front().memory_size();
}

void RecurrentActorCritic::parameters_changed() {
  input_.parameters_changed();
  for (Lstm& lstm : lstms_) lstm.parameters_changed();
  actor_.parameters_changed();
  critic_.parameters_changed();
}

void RecurrentActorCritic::forward(std::span<const shm::TensorView> obs, std::span<float> memory,
                                   std::span<float> head, std::span<float> value) {
  const auto rows = static_cast<std::int64_t>(value.size());
  const auto stride = static_cast<std::int64_t>(memory_size());
  const FloatRows x = input_.forward(obs, 0, rows);
  const FloatRows of_critic = lstms_.back().step(x, rows, memory.data() + critic_memory(), stride);
  copy_out(critic_.forward(of_critic, rows), rows, 1, value);
  if (head.empty()) return;
  const FloatRows of_actor =
      is_shared() ? of_critic : lstms_.front().step(x, rows, memory.data(), stride);
  copy_out(actor_.forward(of_actor, rows), rows, network_.head, head);
}

void RecurrentActorCritic::forward_train(std::span<const shm::TensorView> obs,
                                         const Sequences& sequences, std::span<float> head,
                                         std::span<float> value) {
  rows_ = static_cast<std::int64_t>(sequences.rows.size());
  const auto stride = static_cast<std::int64_t>(memory_size());
  const FloatRows x = input_.forward_train(obs, sequences.rows);
  const float* memory = sequences.memory.data();
  of_actor_ = lstms_.front().forward(x, sequences.counts, memory, stride);
  of_critic_ = is_shared()
                   ? of_actor_
                   : lstms_.back().forward(x, sequences.counts, memory + critic_memory(), stride);
  copy_out(actor_.forward(of_actor_, rows_), rows_, network_.head, head);
  copy_out(critic_.forward(of_critic_, rows_), rows_, 1, value);
}

void RecurrentActorCritic::backward(std::span<const float> d_head, std::span<const float> d_value,
                                    std::span<float> gradient) {
  take_delta(actor_, rows_, network_.head, d_head);
  take_delta(critic_, rows_, 1, d_value);
  actor_.backward(of_actor_, rows_, gradient);
  critic_.backward(of_critic_, rows_, gradient);
  actor_.backward_input(rows_, lstms_.front().d_output());
  if (is_shared()) {
    const std::int64_t size = rows_ * of_critic_.stride;
    float* more = room(d_[0], size);
    critic_.backward_input(rows_, more);
    float* sum = lstms_.front().d_output();
    for (std::int64_t i = 0; i < size; ++i) sum[i] += more[i];
  } else {
    critic_.backward_input(rows_, lstms_.back().d_output());
  }
  for (Lstm& lstm : lstms_) lstm.backward(input_.kept(), gradient);
  if (input_.has_images()) back_to_images(gradient);
  if (network_.log_std >= 0) {
    const auto& log_std = parameters_[static_cast<std::size_t>(network_.log_std)];
    std::fill_n(gradient.data() + log_std.offset, log_std.numel(), 0.0F);
  }
}

void RecurrentActorCritic::back_to_images(std::span<float> gradient) {
  const std::int64_t size = rows_ * input_.kept().stride;
  float* sum = room(d_[0], size);
  lstms_.front().backward_input(sum);
  if (!is_shared()) {
    float* more = room(d_[1], size);
    lstms_.back().backward_input(more);
    for (std::int64_t i = 0; i < size; ++i) sum[i] += more[i];
  }
  input_.backward(sum, gradient);
}

}  // namespace shoal::learn
