#include "shoal/learn/sac/sac_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/learn/network/mlp_layers.h"
#include "shoal/learn/sac/squashed_gaussian.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

const env::Space& a_box(const env::Space& action) {
  if (action.get_if<env::Box>() != nullptr) return action;
  throw InvalidArgument(
      fmt::format("sac learns actions of a Box with bounds, not of {}. dqn learns a Discrete "
                  "space; ppo and a2c "
                  "learn Box, Discrete, MultiDiscrete and MultiBinary",
                  action.repr()));
}

void check_bounds(const collect::ActionDecoder& decoder) {
  if (decoder.low().empty())
    throw InvalidArgument("sac learns actions of a Box that has elements, and this one has none");
  for (std::size_t k = 0; k < decoder.low().size(); ++k) {
    if (std::isfinite(decoder.low()[k]) && std::isfinite(decoder.high()[k])) continue;
    throw InvalidArgument(fmt::format(
        "sac scales its actions to the bounds of the Box, and element {} has none ([{}, {}]). Give "
        "the space bounds, as Gymnasium's RescaleAction does; ppo and a2c learn without",
        k, decoder.low()[k], decoder.high()[k]));
  }
}

void check_no_images(const collect::ObservationEncoder& encoder) {
  if (encoder.image_paths().empty()) return;
  const std::string& path = encoder.image_paths().front();
  throw InvalidArgument(
      fmt::format("sac does not learn from images so far, and the observations have one{}. ppo, "
                  "a2c, impala and "
                  "appo do; or let the environment give a vector of features",
                  path.empty() ? "" : fmt::format(" ('{}')", path)));
}

}  // namespace

SacPolicy::SacPolicy(const env::Space& observation, const env::Space& action,
                     const SacConfig& config, std::uint64_t seed)
    : OffPolicyAgent(observation, a_box(action), config, seed),
      dimensions_(static_cast<std::size_t>(decoder().spec().numel())) {
  check_no_images(encoder());
  check_bounds(decoder());
  layers_ = add_mlp(parameters(), "actor", encoder().dense(), config.policy_hidden,
                    static_cast<std::int64_t>(2 * dimensions_), 0.01);
  parameters().build();
  for (const Layer& layer : layers_)
    initialize_layer(layer, parameters(), config.orthogonal_init, random());
  network_ = std::make_unique<MlpChain>(layers_, config.activation, parameters());
}

FloatRows SacPolicy::head_of(std::span<const shm::TensorView> obs) {
  return network_->forward({reinterpret_cast<const float*>(obs[0].data), encoder().dense()},
                           obs[0].rows);
}

void SacPolicy::fill_noise(Stream stream, std::uint64_t step, std::uint32_t which,
                           std::span<float> noise) const {
  const std::size_t rows = noise.size() / dimensions_;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < dimensions_; k += 4) {
      const auto bits = random()(stream, step, static_cast<std::uint32_t>(r),
                                 which << 16 | static_cast<std::uint32_t>(k / 4));
      const auto first = normals(bits[0], bits[1]);
      const auto second = normals(bits[2], bits[3]);
      const double four[] = {first[0], first[1], second[0], second[1]};
      for (std::size_t j = 0; j < 4 && k + j < dimensions_; ++j)
        noise[r * dimensions_ + k + j] = static_cast<float>(four[j]);
    }
  }
}

void SacPolicy::sample(std::span<const shm::TensorView> obs, Stream stream, std::uint64_t step,
                       std::span<float> actions, std::span<float> log_prob) {
  noise_.resize(actions.size());
  fill_noise(stream, step, 0, noise_);
  const FloatRows head = head_of(obs);
  for (std::size_t r = 0; r < log_prob.size(); ++r) {
    const auto at = r * dimensions_;
    log_prob[r] =
        squash({head.row(static_cast<std::int64_t>(r)), 2 * dimensions_},
               std::span(noise_).subspan(at, dimensions_), actions.subspan(at, dimensions_));
  }
}

void SacPolicy::decode(const shm::TensorView& actions, const shm::TensorView& to) const {
  const auto unit = actions.as<float>();
  scaled_.resize(unit.size());
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const double low = decoder().low()[i % dimensions_];
    const double high = decoder().high()[i % dimensions_];
    scaled_[i] =
        static_cast<float>(low + 0.5 * (static_cast<double>(unit[i]) + 1.0) * (high - low));
  }
  decoder().decode({reinterpret_cast<std::byte*>(scaled_.data()), actions.rows, actions.row}, to);
}

void SacPolicy::act(std::span<const shm::TensorView> obs, std::span<float> /*memory*/,
                    std::span<const shm::TensorView> actions, bool deterministic,
                    std::uint64_t step) {
  const shm::TensorView unit = actions_for(obs);
  const auto encoded = encode(obs);
  if (deterministic) {
    const FloatRows head = head_of(encoded);
    const auto chosen = unit.as<float>();
    for (std::size_t i = 0; i < chosen.size(); ++i)
      chosen[i] = std::tanh(head.row(static_cast<std::int64_t>(i / dimensions_))[i % dimensions_]);
  } else {
    logp_.resize(static_cast<std::size_t>(unit.rows));
    sample(encoded, Stream::kEvaluation, step, unit.as<float>(), logp_);
  }
  decode(unit, actions[0]);
}

void SacPolicy::decide(std::span<const shm::TensorView> obs, std::span<float> /*memory*/,
                       std::uint64_t step, const shm::TensorView& action, std::span<float> log_prob,
                       std::span<float> value) {
  const shm::TensorView unit = actions_for(obs);
  logp_.resize(static_cast<std::size_t>(unit.rows));
  sample(encode(obs), Stream::kAction, step, unit.as<float>(), logp_);
  std::ranges::copy(std::span(logp_).first(log_prob.size()), log_prob.begin());
  std::ranges::fill(value, std::numeric_limits<float>::quiet_NaN());
  decode(unit, action);
}

std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action, const SacConfig& config,
                                                 std::uint64_t seed) {
  return std::make_unique<SacPolicy>(observation, action, config, seed);
}

}  // namespace shoal::learn
