#include "shoal/learn/network/mlp_layers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shoal::learn {

void uniform_within(std::span<float> out, double bound, const Philox& random, std::uint64_t which) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto bits = random(Stream::kInit, which, static_cast<std::uint32_t>(i / 4))[i % 4];
    out[i] = static_cast<float>(bound * (2.0 * uniform(bits) - 1.0));
  }
}

Layer add_linear(Parameters& parameters, const std::string& name, std::int64_t in, std::int64_t out,
                 bool activated, double gain) {
  Layer layer{.in = in, .out = out, .activated = activated, .gain = gain};
  layer.weight = parameters.add(name + ".weight", {out, in});
  layer.bias = parameters.add(name + ".bias", {out});
  return layer;
}

Mlp add_mlp(Parameters& parameters, const std::string& name, std::int64_t in,
            std::span<const int> hidden, std::int64_t outputs, double head_gain) {
  Mlp mlp;
  int index = 0;
  for (const int width : hidden) {
    mlp.push_back(add_linear(parameters, name + "." + std::to_string(index), in, width, true,
                             std::numbers::sqrt2));
    in = width;
    index += 2;
  }
  if (outputs > 0) {
    mlp.push_back(
        add_linear(parameters, name + "." + std::to_string(index), in, outputs, false, head_gain));
  }
  return mlp;
}

void initialize_layer(const Layer& layer, Parameters& parameters, bool orthogonal_init,
                      const Philox& random) {
  const auto weight = parameters.values(layer.weight);
  const auto bias = parameters.values(layer.bias);
  const auto fan_in = static_cast<std::int64_t>(weight.size()) / layer.out;
  if (orthogonal_init) {
    orthogonal(weight, layer.out, fan_in, layer.gain, random, layer.weight);
    std::ranges::fill(bias, 0.0F);
    return;
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  uniform_within(weight, bound, random, layer.weight);
  uniform_within(bias, bound, random, layer.bias);
}

}  // namespace shoal::learn
