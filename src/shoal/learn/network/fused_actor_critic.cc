#include "shoal/learn/network/fused_actor_critic.h"

#include <algorithm>

#include "shoal/learn/network/recurrent_actor_critic.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;  // when nothing is kept: activations stay in the cache

}  // namespace

FusedActorCritic::FusedActorCritic(const Network& network, const Parameters& parameters,
                                   const MlpKernels& kernels, int threads)
    : network_(network),
      parameters_(parameters),
      input_(network.features, parameters, kernels, threads),
      trunk_(network.trunk, network.activation, parameters, kernels),
      actor_(network.actor, network.activation, parameters, kernels),
      critic_(network.critic, network.activation, parameters, kernels) {
  input_.parameters_changed();
}

void FusedActorCritic::parameters_changed() {
  input_.parameters_changed();
  for (MlpChain* chain : {&trunk_, &actor_, &critic_}) chain->parameters_changed();
}

FloatRows FusedActorCritic::run(FloatRows x, std::int64_t rows, std::span<float> head,
                                std::span<float> value) {
  const FloatRows features = trunk_.forward(x, rows);
  if (!head.empty()) actor_.forward(features, rows).copy_to(head, rows, network_.head);
  critic_.forward(features, rows).copy_to(value, rows, 1);
  return features;
}

void FusedActorCritic::forward(std::span<const shm::TensorView> obs, std::span<float> /*memory*/,
                               std::span<float> head, std::span<float> value) {
  const auto all = static_cast<std::int64_t>(value.size());
  const auto width = static_cast<std::size_t>(network_.head);
  for (std::int64_t from = 0; from < all; from += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, all - from);
    const auto first = static_cast<std::size_t>(from);
    const auto n = static_cast<std::size_t>(rows);
    run(input_.forward(obs, from, rows), rows,
        head.empty() ? head : head.subspan(first * width, n * width), value.subspan(first, n));
  }
}

void FusedActorCritic::forward_train(std::span<const shm::TensorView> obs,
                                     const Sequences& sequences, std::span<float> head,
                                     std::span<float> value) {
  rows_ = static_cast<std::int64_t>(sequences.rows.size());
  features_ = run(input_.forward_train(obs, sequences.rows), rows_, head, value);
}

void FusedActorCritic::backward(std::span<const float> d_head, std::span<const float> d_value,
                                std::span<float> gradient) {
  actor_.take_delta(d_head);
  critic_.take_delta(d_value);
  actor_.backward(features_, rows_, gradient);
  critic_.backward(features_, rows_, gradient);
  if (!trunk_.empty()) {
    MlpChain::backward_shared_input(actor_, critic_, rows_, trunk_.delta(), from_critic_,
                                    &features_);
    trunk_.backward(input_.kept(), rows_, gradient);
  }
  if (input_.has_images()) back_to_images(gradient);
  if (network_.log_std >= 0) {
    const auto& log_std = parameters_[static_cast<std::size_t>(network_.log_std)];
    std::fill_n(gradient.data() + log_std.offset, log_std.numel(), 0.0F);
  }
}

void FusedActorCritic::back_to_images(std::span<float> gradient) {
  float* d_input = d_input_.room(rows_ * padded(network_.features.width));
  if (trunk_.empty())
    MlpChain::backward_shared_input(actor_, critic_, rows_, d_input, from_critic_);
  else
    trunk_.backward_input(rows_, d_input);
  input_.backward(d_input, gradient);
}

std::unique_ptr<ActorCritic> make_fused_actor_critic(const Network& network,
                                                     const Parameters& parameters) {
  if (!network.lstms.empty())
    return std::make_unique<RecurrentActorCritic>(network, parameters, mlp_kernels().front());
  return std::make_unique<FusedActorCritic>(network, parameters, mlp_kernels().front());
}

}  // namespace shoal::learn
