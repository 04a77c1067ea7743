// Chains of linear layers, as networks are made of them: their parameters, and how those begin.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/philox.h"

namespace shoal::learn {

/// One linear layer: `name`.weight [out, in] and `name`.bias [out].
Layer add_linear(Parameters& parameters, const std::string& name, std::int64_t in, std::int64_t out,
                 bool activated, double gain);

/// Sequential(Linear, Activation, …) named `name`; `outputs` > 0 adds a last linear layer with
/// `head_gain`.
Mlp add_mlp(Parameters& parameters, const std::string& name, std::int64_t in,
            std::span<const int> hidden, std::int64_t outputs, double head_gain);

/// Fills `out` with numbers within [-bound, bound): a function of the seed and of `which`.
void uniform_within(std::span<float> out, double bound, const Philox& random, std::uint64_t which);

/// First values of a layer: orthogonal with its gain, and biases of 0; or PyTorch's default, uniform
/// within 1 / sqrt(inputs), biases too. A function of the seed and the parameters' order alone.
void initialize_layer(const Layer& layer, Parameters& parameters, bool orthogonal_init,
                      const Philox& random);

}  // namespace shoal::learn
