// The value of every action in a state: Q(s, a) of a Discrete action space.
//
//   observations -> features (network.h) -> Q MLP -> a value an action
//
// or, with dueling streams (Wang et al., 2016), Q = V + A - mean A:
//
//   features -> trunk MLP -+-> value MLP     -> V
//                          +-> advantage MLP -> A of each action
//
// where the streams take over the last hidden layer. Parameters carry the names of this module's state_dict:
// those of the features, and {q,trunk,value,advantage}.{0,2,…}.{weight,bias}, Sequential(Linear, ReLU, …, Linear).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/collect/observation_encoder.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/philox.h"
#include "shoal/learn/network/thread_team.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// Where the parameters are; a value.
struct QLayers {
  Features features;
  std::int64_t actions = 0;
  Mlp trunk;             // all of it, if not dueling
  Mlp value, advantage;  // empty if not dueling
  Activation activation = Activation::kRelu;

  bool dueling() const noexcept { return !advantage.empty(); }

  /// Declares the parameters and builds them. Hidden layers are policy_hidden.
  static QLayers create(const collect::ObservationEncoder& obs, std::int64_t actions, bool dueling,
                        const LearnerConfig& config, Parameters& parameters);
  /// Initial values: a function of the seed alone.
  void initialize(Parameters& parameters, const LearnerConfig& config, const Philox& random) const;
};

/// Threads: one at a time.
class QNetwork {
 public:
  virtual ~QNetwork() = default;

  /// Of encoded observations, a view for each leaf; `q` has `actions` elements a row. Any number of rows.
  virtual void forward(std::span<const shm::TensorView> obs, std::span<float> q) = 0;
  /// The same, keeping what backward() needs; images must stay as they are until then.
  virtual void forward_train(std::span<const shm::TensorView> obs, std::span<float> q) = 0;
  /// From the derivative of the loss by forward_train()'s values to that by all parameters, which it
  /// overwrites.
  virtual void backward(std::span<const float> d_q, std::span<float> gradient) = 0;
  /// To be told whenever they are.
  virtual void parameters_changed() = 0;
  /// The threads that it computes with; null where that is the calling one.
  virtual ThreadTeam* team() noexcept { return nullptr; }
};

/// Borrows both. On own kernels (mlp_chain.h, feature_input.h).
std::unique_ptr<QNetwork> make_q_network(const QLayers& layers, const Parameters& parameters);

}  // namespace shoal::learn
