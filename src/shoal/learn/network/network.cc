#include "shoal/learn/network/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "shoal/learn/network/lstm.h"
#include "shoal/learn/network/mlp_layers.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kNatureFeatures = 512;

ImageTower add_tower(Parameters& parameters, const std::string& name,
                     const std::vector<std::int64_t>& shape) {
  struct Convolution {
    int index;
    std::int64_t out, kernel, stride;
  };
  constexpr Convolution kNature[] = {{0, 32, 8, 4}, {2, 64, 4, 2}, {4, 64, 3, 1}};
  ImageTower tower;
  tower.shape = {shape[0], shape[1], shape[2]};
  std::int64_t channels = shape[0];
  std::int64_t height = shape[1];
  std::int64_t width = shape[2];
  for (const auto& c : kNature) {
    Layer layer{.in = channels,
                .out = c.out,
                .kernel = c.kernel,
                .stride = c.stride,
                .gain = std::numbers::sqrt2};
    const std::string prefix = name + "." + std::to_string(c.index);
    layer.weight = parameters.add(prefix + ".weight", {c.out, channels, c.kernel, c.kernel});
    layer.bias = parameters.add(prefix + ".bias", {c.out});
    tower.convolutions.push_back(layer);
    channels = c.out;
    height = (height - c.kernel) / c.stride + 1;
    width = (width - c.kernel) / c.stride + 1;
  }
  tower.linear = add_linear(parameters, name + ".7", channels * height * width, kNatureFeatures,
                            true, std::numbers::sqrt2);
  return tower;
}

// A module's name cannot hold dots or be empty.
std::string module_name(const std::string& path) {
  if (path.empty()) return "image";
  std::string name = path;
  std::ranges::replace_if(name, [](char c) { return c == '.' || c == '/'; }, '_');
  return name;
}

double dot(std::span<const double> a, std::span<const double> b) {
  // Eight sums side by side: vectorised without reordering what the language fixes.
  double sum[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= a.size(); i += 8) {
    for (std::size_t k = 0; k < 8; ++k) sum[k] += a[i + k] * b[i + k];
  }
  for (; i < a.size(); ++i) sum[0] += a[i] * b[i];
  return std::accumulate(sum, sum + 8, 0.0);
}

// Normal numbers for one matrix; `which` names it.
void fill_normal(std::span<double> out, const Philox& random, std::uint64_t which) {
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto bits = random(Stream::kInit, which, static_cast<std::uint32_t>(i / 4));
    const auto first = normals(bits[0], bits[1]);
    const auto second = normals(bits[2], bits[3]);
    const double four[] = {first[0], first[1], second[0], second[1]};
    for (std::size_t k = 0; k < 4 && i + k < out.size(); ++k) out[i + k] = four[k];
  }
}

// Gram and Schmidt, twice over each vector so that rounding leaves them orthogonal.
void orthonormalize(std::vector<double>& vectors, std::size_t count, std::size_t length) {
  auto vector = [&](std::size_t i) {
    return std::span<double>(vectors).subspan(i * length, length);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const auto v = vector(i);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto u = vector(j);
        const double along = dot(v, u);
        for (std::size_t k = 0; k < length; ++k) v[k] -= along * u[k];
      }
    }
    const double norm = std::sqrt(dot(v, v));
    for (auto& x : v) x /= norm;
  }
}

}  // namespace

void orthogonal(std::span<float> weight, std::int64_t rows, std::int64_t columns, double gain,
                const Philox& random, std::uint64_t stream_step) {
  const auto r = static_cast<std::size_t>(rows);
  const auto c = static_cast<std::size_t>(columns);
  const std::size_t count = std::min(r, c);
  const std::size_t length = std::max(r, c);
  std::vector<double> vectors(count * length);
  fill_normal(vectors, random, stream_step);
  orthonormalize(vectors, count, length);
  for (std::size_t i = 0; i < r; ++i) {
    for (std::size_t j = 0; j < c; ++j) {
      const double x = r <= c ? vectors[i * length + j] : vectors[j * length + i];
      weight[i * c + j] = static_cast<float>(gain * x);
    }
  }
}

Features Features::create(const collect::ObservationEncoder& obs, const LearnerConfig& config,
                          Parameters& parameters) {
  if (config.precision == Precision::kBfloat16 && obs.image_paths().empty())
    throw InvalidArgument(
        "configure training: precision = bfloat16; it is for observations with pictures, and these "
        "have none: choose float32");
  if (config.pixel_mean != 0 && obs.image_paths().empty())
    throw InvalidArgument(fmt::format(
        "configure training: pixel_mean = {}; it is for observations with pictures, and "
        "these have none: leave it 0",
        config.pixel_mean));
  Features features{
      .dense = obs.dense(), .width = obs.dense(), .images = {}, .precision = config.precision};
  for (std::size_t i = 0; i < obs.image_paths().size(); ++i) {
    const auto& spec = obs.specs()[i + (obs.has_dense() ? 1 : 0)];
    const std::string& path = obs.image_paths()[i];
    for (std::size_t k = 0; k < i; ++k) {
      if (module_name(obs.image_paths()[k]) == module_name(path))
        throw InvalidArgument(fmt::format(
            "learn from the pictures '{}' and '{}': in a checkpoint both would be called "
            "{}; give one of them another name",
            obs.image_paths()[k], path, module_name(path)));
    }
    features.images.push_back(add_tower(parameters, "cnn." + module_name(path), spec.shape));
    features.images.back().pixel_mean = config.pixel_mean;
    features.width += kNatureFeatures;
  }
  return features;
}

void Features::initialize(Parameters& parameters, bool orthogonal_init,
                          const Philox& random) const {
  for (const ImageTower& tower : images) {
    for (const Layer& layer : tower.convolutions)
      initialize_layer(layer, parameters, orthogonal_init, random);
    initialize_layer(tower.linear, parameters, orthogonal_init, random);
  }
}

void require_fast(Precision precision, const MlpKernels& kernels) {
  if (precision == Precision::kFloat32 || kernels.bfloat16_is_faster) return;
  throw InvalidArgument(
      "configure training: precision = bfloat16; on this processor it is slower than float32 "
      "(it is faster on AMD's with AVX512_BF16, from Zen 4 on, and on Intel's with AMX): choose "
      "float32. A policy that was trained with it acts here as anywhere");
}

Network Network::create(const collect::ObservationEncoder& obs,
                        const collect::ActionDecoder& actions, const LearnerConfig& config,
                        Parameters& parameters, const Recurrence& recurrence) {
  Network net;
  net.activation = config.activation;
  net.features = Features::create(obs, config, parameters);
  net.head = actions.is_continuous() ? actions.spec().shape[0]
                                     : std::accumulate(actions.categories().begin(),
                                                       actions.categories().end(), std::int64_t{0});
  std::int64_t in = net.features.width;
  std::span<const int> policy_hidden = config.policy_hidden;
  std::span<const int> value_hidden = config.value_hidden;
  if (config.shared_hidden && !policy_hidden.empty()) {
    net.trunk = add_mlp(parameters, "trunk", in, policy_hidden, 0, 0.0);
    in = policy_hidden.back();
    policy_hidden = value_hidden = {};
  }
  if (recurrence.lstm_size > 0) {
    if (!recurrence.shared) net.lstms.push_back(add_lstm(parameters, "actor_lstm", in, recurrence));
    net.lstms.push_back(
        add_lstm(parameters, recurrence.shared ? "lstm" : "critic_lstm", in, recurrence));
    in = recurrence.lstm_size;
  }
  net.actor = add_mlp(parameters, "actor", in, policy_hidden, net.head, 0.01);
  net.critic = add_mlp(parameters, "critic", in, value_hidden, 1, config.value_gain);
  if (actions.is_continuous())
    net.log_std = static_cast<std::ptrdiff_t>(parameters.add("log_std", {net.head}));
  parameters.build();
  return net;
}

void Network::initialize(Parameters& parameters, const LearnerConfig& config,
                         const Philox& random) const {
  auto layer = [&](const Layer& l) {
    initialize_layer(l, parameters, config.orthogonal_init, random);
  };
  features.initialize(parameters, config.orthogonal_init, random);
  for (const auto* mlp : {&trunk, &actor, &critic}) std::ranges::for_each(*mlp, layer);
  for (const LstmLayer& lstm : lstms)
    initialize_lstm(lstm, parameters, config.orthogonal_init, random);
  if (log_std >= 0) {
    std::ranges::fill(parameters.values(static_cast<std::size_t>(log_std)),
                      static_cast<float>(config.log_std_init));
  }
}

}  // namespace shoal::learn
