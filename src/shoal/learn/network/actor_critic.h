// A policy's network as learners use it: forward for acting, forward and backward for learning.
//
// FusedActorCritic implements it, and RecurrentActorCritic where the network has LSTMs. They read the
// parameters in place and write gradients in the same flat layout.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/thread_team.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// Rows to learn from. To a network that remembers they are sequences beside each other, which lstm.h
/// says the order of; others learn from each row by itself.
struct Sequences {
  explicit Sequences(std::span<const std::int32_t> rows) noexcept : rows(rows) {}
  Sequences(std::span<const std::int32_t> rows, std::span<const std::int32_t> counts,
            std::span<const float> memory) noexcept
      : rows(rows), counts(counts), memory(memory) {}

  std::span<const std::int32_t> rows;
  std::span<const std::int32_t> counts;  // of the rows, how many are each step's
  std::span<const float> memory;         // [counts[0]][memory_size()]: before the first step
};

class ActorCritic {
 public:
  virtual ~ActorCritic() = default;

  /// Floats that the network remembers of a row's episode: zeros where one begins.
  virtual std::size_t memory_size() const noexcept { return 0; }

  /// The actor's outputs ([rows, head]; logits or means) and the values ([rows]) for encoded
  /// observations, one view per leaf; `memory` ([rows, memory_size()]) moves on by the step. An empty
  /// `head` asks for the values alone, and leaves no memory to go on with.
  virtual void forward(std::span<const shm::TensorView> obs, std::span<float> memory,
                       std::span<float> head, std::span<float> value) = 0;

  /// The same for the rows of `obs` that `sequences` lists, keeping what backward() needs until the
  /// next call of anything. `obs` must stay as they are until then.
  virtual void forward_train(std::span<const shm::TensorView> obs, const Sequences& sequences,
                             std::span<float> head, std::span<float> value) = 0;

  /// From the loss's derivatives by the outputs of the last forward_train() to those by the
  /// parameters: overwrites every parameter's place in `gradient` (the layout of
  /// Parameters::flat()), log_std's with zeros; gaps are left as they are.
  virtual void backward(std::span<const float> d_head, std::span<const float> d_value,
                        std::span<float> gradient) = 0;

  /// Must be called when parameters were changed, before the next forward.
  virtual void parameters_changed() = 0;

  /// The threads that it computes with; null where that is the calling one.
  virtual ThreadTeam* team() noexcept { return nullptr; }
};

/// On own kernels, the fastest that this processor can run; with the network's LSTMs where it has
/// some. Borrows both.
std::unique_ptr<ActorCritic> make_fused_actor_critic(const Network& network,
                                                     const Parameters& parameters);

}  // namespace shoal::learn
