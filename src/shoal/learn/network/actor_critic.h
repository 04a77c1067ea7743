// A policy's network as learners use it: forward for acting, forward and backward for learning.
//
// FusedActorCritic implements it. It reads the parameters in place and writes gradients in the same
// flat layout.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class ActorCritic {
 public:
  virtual ~ActorCritic() = default;

  /// The actor's outputs ([rows, head]; logits or means) and the values ([rows]) for encoded
  /// observations, one view per leaf. An empty `head` asks for the values alone.
  virtual void forward(std::span<const shm::TensorView> obs, std::span<float> head,
                       std::span<float> value) = 0;

  /// The same for the rows of `obs` that `rows` lists, keeping what backward() needs until the next
  /// call of anything. `obs` must stay as they are until then.
  virtual void forward_train(std::span<const shm::TensorView> obs,
                             std::span<const std::int32_t> rows, std::span<float> head,
                             std::span<float> value) = 0;

  /// From the loss's derivatives by the outputs of the last forward_train() to those by the
  /// parameters: overwrites every parameter's place in `gradient` (the layout of
  /// Parameters::flat()), log_std's with zeros; gaps are left as they are.
  virtual void backward(std::span<const float> d_head, std::span<const float> d_value,
                        std::span<float> gradient) = 0;

  /// Must be called when parameters were changed, before the next forward.
  virtual void parameters_changed() = 0;
};

/// On own kernels, the fastest that this processor can run. Borrows both.
std::unique_ptr<ActorCritic> make_fused_actor_critic(const Network& network,
                                                     const Parameters& parameters);

}  // namespace shoal::learn
