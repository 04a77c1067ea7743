#include "shoal/learn/network/recurrent_actor_critic.h"

#include <algorithm>

namespace shoal::learn {

RecurrentActorCritic::RecurrentActorCritic(const Network& network, const Parameters& parameters,
                                           const MlpKernels& kernels, int threads)
    : network_(network),
      parameters_(parameters),
      input_(network.features, parameters, kernels, threads),
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
  critic_.forward(of_critic, rows).copy_to(value, rows, 1);
  if (head.empty()) return;
  const FloatRows of_actor =
      is_shared() ? of_critic : lstms_.front().step(x, rows, memory.data(), stride);
  actor_.forward(of_actor, rows).copy_to(head, rows, network_.head);
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
  actor_.forward(of_actor_, rows_).copy_to(head, rows_, network_.head);
  critic_.forward(of_critic_, rows_).copy_to(value, rows_, 1);
}

void RecurrentActorCritic::backward(std::span<const float> d_head, std::span<const float> d_value,
                                    std::span<float> gradient) {
  actor_.take_delta(d_head);
  critic_.take_delta(d_value);
  actor_.backward(of_actor_, rows_, gradient);
  critic_.backward(of_critic_, rows_, gradient);
  if (is_shared()) {
    MlpChain::backward_shared_input(actor_, critic_, rows_, lstms_.front().d_output(), d_[0]);
  } else {
    actor_.backward_input(rows_, lstms_.front().d_output());
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
  float* sum = d_[0].room(size);
  lstms_.front().backward_input(sum);
  if (!is_shared()) {
    float* more = d_[1].room(size);
    lstms_.back().backward_input(more);
    for (std::int64_t i = 0; i < size; ++i) sum[i] += more[i];
  }
  input_.backward(sum, gradient);
}

}  // namespace shoal::learn
