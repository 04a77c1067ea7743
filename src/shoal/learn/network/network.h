// What a policy's network looks like, where its parameters are, and how they begin.
//
//   images -> Nature CNN each (Mnih et al., 2015) --+
//   dense vector -----------------------------------+-> features -> actor MLP  -> head
//                                                                -> critic MLP -> value
//
// The head is logits or means. With shared hidden layers: features -> trunk MLP -> one linear layer
// each. With recurrence: features -> LSTM -> MLP, an LSTM for each MLP or one for both.
//
// Parameters carry the names of this module's state_dict:
//
//   cnn.<image>.{0,2,4,7}.{weight,bias}     Sequential(Conv, ReLU, Conv, ReLU, Conv, ReLU, Flatten,
//                                           Linear, ReLU)
//   {actor,critic,trunk}.{0,2,…}.{weight,bias}   Sequential(Linear, Tanh, …, Linear)
//   {actor_lstm,critic_lstm,lstm}.{weight,bias}_{ih,hh}_l0   LSTM
//   log_std                                 [actions], of Gaussian policies only
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/philox.h"

namespace shoal::learn {

/// One linear or convolutional layer: its parameters by index, and its gain at initialisation.
struct Layer {
  std::size_t weight = 0;
  std::size_t bias = 0;
  std::int64_t in = 0;  // features or channels
  std::int64_t out = 0;
  std::int64_t kernel = 0;  // 0: linear
  std::int64_t stride = 0;
  bool activated = true;  // followed by the activation
  double gain = 1.0;
};

/// A chain of linear layers.
using Mlp = std::vector<Layer>;

/// One layer of LSTM cells: its parameters by index.
struct LstmLayer {
  std::size_t weight_ih = 0;
  std::size_t weight_hh = 0;
  std::size_t bias_ih = 0;
  std::size_t bias_hh = 0;
  std::int64_t in = 0;
  std::int64_t size = 0;
};

/// What a policy remembers of an episode.
struct Recurrence {
  int lstm_size = 0;    // cells; 0: nothing
  bool shared = false;  // one LSTM for policy and value
};

struct ImageTower {
  std::array<std::int64_t, 3> shape{};  // channels, height, width
  double pixel_mean = 0.0;              // taken from its pixels, which are scaled to [0, 1]
  std::vector<Layer> convolutions;
  Layer linear;
};

/// What a network's layers take of observations: the dense vector, then the features of each image.
struct Features {
  std::int64_t dense = 0;  // elements of the dense vector
  std::int64_t width = 0;  // of both, concatenated
  std::vector<ImageTower> images;
  Precision precision = Precision::kFloat32;  // of the images' layers

  /// Declares the images' parameters. Throws InvalidArgument for options of images without any.
  static Features create(const collect::ObservationEncoder& obs, const LearnerConfig& config,
                         Parameters& parameters);
  void initialize(Parameters& parameters, bool orthogonal_init, const Philox& random) const;
};

struct Network {
  Features features;
  std::int64_t head = 0;         // outputs of the actor
  Mlp trunk;                     // empty unless hidden layers are shared
  std::vector<LstmLayer> lstms;  // none; one for both MLPs; or the actor's and the critic's
  Mlp actor;
  Mlp critic;
  std::ptrdiff_t log_std = -1;  // parameter index; -1: not Gaussian
  Activation activation = Activation::kTanh;

  /// Declares the parameters in `parameters` and builds them.
  static Network create(const collect::ObservationEncoder& obs,
                        const collect::ActionDecoder& actions, const LearnerConfig& config,
                        Parameters& parameters, const Recurrence& recurrence = {});

  /// Initial values: a function of the seed alone.
  void initialize(Parameters& parameters, const LearnerConfig& config, const Philox& random) const;
};

/// Throws InvalidArgument where learning with this precision would be slower than with float32:
/// `kernels` are the processor's.
void require_fast(Precision precision, const MlpKernels& kernels = mlp_kernels().front());

/// Fills `weight` ([rows, columns], row-major) with a random matrix whose rows or columns,
/// whichever are fewer, are orthogonal and of length `gain` (Saxe et al., 2013).
void orthogonal(std::span<float> weight, std::int64_t rows, std::int64_t columns, double gain,
                const Philox& random, std::uint64_t stream_step);

}  // namespace shoal::learn
