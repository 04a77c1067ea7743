// shoal._learn: the arithmetic of learners piece by piece, which tests hold to torch's: networks
// and their gradients, losses, optimisers.
#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "learn/learn_bindings.h"
#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/env/space_json.h"
#include "shoal/learn/a2c/a2c_loss.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/learn/network/actor_critic.h"
#include "shoal/learn/optimizer/optimizer.h"
#include "shoal/learn/ppo/ppo_loss.h"
#include "shoal/os/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Actions = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Observations = std::vector<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>;

learn::TrainConfig config_of(const std::string& json) {
  learn::TrainConfig config;
  apply_overrides(parse_json(json, "the configuration"), config);
  validate(config);
  return config;
}

env::Space space_of(const std::string& json) {
  return env::space_from_json(parse_json(json, "the space"));
}

std::span<const float> span_of(const Floats& array) { return {array.data(), array.size()}; }

nb::object array_of(std::span<const float> values, const std::vector<std::int64_t>& shape) {
  const nb::object flat = nb::module_::import_("numpy").attr("frombuffer")(
      nb::bytes(values.data(), values.size_bytes()), "dtype"_a = "float32");
  return flat.attr("reshape")(shape).attr("copy")();
}

/// A network for these spaces, with the values that the seed gives it.
class NetworkArithmetic {
 public:
  NetworkArithmetic(const std::string& observation_space, const std::string& action_space,
                    const std::string& config_json, std::uint64_t seed)
      : config_(config_of(config_json)),
        space_(space_of(observation_space)),
        encoder_(space_),
        network_(learn::Network::create(encoder_, collect::ActionDecoder(space_of(action_space)),
                                        config_.learner(), parameters_, recurrence())) {
    network_.initialize(parameters_, config_.learner(), learn::Philox(seed));
    model_ = make_fused_actor_critic(network_, parameters_);
  }

  nb::dict weights() const { return by_name(parameters_.flat()); }

  void load_weights(const std::map<std::string, Floats>& arrays) {
    for (const auto& [name, array] : arrays) {
      const std::ptrdiff_t index = parameters_.find(name);
      if (index < 0 || parameters_[static_cast<std::size_t>(index)].numel() != array.size())
        throw InvalidArgument(
            fmt::format("the network has no '{}' of {} elements", name, array.size()));
      std::ranges::copy(span_of(array),
                        parameters_.values(static_cast<std::size_t>(index)).begin());
    }
    model_->parameters_changed();
  }

  nb::tuple forward(const Observations& observations) {
    const auto rows = encode(observations);
    std::vector<float> head(rows * width()), value(rows), memory(rows * model_->memory_size());
    model_->forward(views_, memory, head, value);
    return outputs(head, value);
  }

  nb::tuple differentiate(const Observations& observations, const Floats& d_head,
                          const Floats& d_value, const std::vector<std::int32_t>& counts,
                          const std::optional<Floats>& memory) {
    const auto rows = encode(observations);
    if (d_head.size() != rows * width() || d_value.size() != rows)
      throw InvalidArgument("the derivatives have other sizes than the outputs");
    const auto before = memory ? span_of(*memory) : std::span<const float>();
    const auto first = counts.empty() ? 0 : static_cast<std::size_t>(counts.front());
    if (std::accumulate(counts.begin(), counts.end(), std::size_t{0}) !=
            (model_->memory_size() > 0 ? rows : 0) ||
        !std::ranges::is_sorted(counts, std::ranges::greater()) ||
        before.size() != first * model_->memory_size())
      throw InvalidArgument("the sequences, or their memory, are not of these rows");
    std::vector<float> head(rows * width()), value(rows), gradient(parameters_.flat().size());
    std::vector<std::int32_t> all(rows);
    std::iota(all.begin(), all.end(), 0);
    model_->forward_train(views_, {all, counts, before}, head, value);
    model_->backward(span_of(d_head), span_of(d_value), gradient);
    return nb::make_tuple(outputs(head, value), by_name(gradient));
  }

 private:
  learn::Recurrence recurrence() const {
    const auto* config = std::get_if<learn::RecurrentPpoConfig>(&config_.algorithm);
    return config != nullptr ? config->recurrence() : learn::Recurrence{};
  }

  std::size_t width() const { return static_cast<std::size_t>(network_.head); }

  /// Into views_; returns the number of rows. Throws InvalidArgument for arrays that are not those of
  /// the space's leaves: bytes, or else float32.
  std::size_t encode(const Observations& observations) {
    const auto leaves = env::leaves(space_);
    std::vector<shm::TensorView> raw;
    for (const auto& array : observations) {
      shm::TensorSpec spec{
          array.dtype() == nb::dtype<std::uint8_t>() ? shm::DType::kU8 : shm::DType::kF32, {}};
      for (std::size_t d = 1; d < array.ndim(); ++d)
        spec.shape.push_back(static_cast<std::int64_t>(array.shape(d)));
      const std::int64_t rows = array.ndim() > 0 ? static_cast<std::int64_t>(array.shape(0)) : 0;
      if (raw.size() == leaves.size() || spec != leaves[raw.size()].spec || rows < 1 ||
          (!raw.empty() && rows != raw[0].rows))
        throw InvalidArgument(
            fmt::format("array {} is not rows of a leaf of {}", raw.size(), space_.repr()));
      auto* data = const_cast<void*>(static_cast<const void*>(array.data()));
      raw.push_back({static_cast<std::byte*>(data), rows, std::move(spec)});
    }
    if (raw.size() < leaves.size())
      throw InvalidArgument(fmt::format("{} has {} leaves", space_.repr(), leaves.size()));
    const auto rows = static_cast<std::size_t>(raw[0].rows);
    encoded_.resize(encoder_.specs().size());
    views_.clear();
    for (std::size_t leaf = 0; leaf < encoded_.size(); ++leaf) {
      const auto& spec = encoder_.specs()[leaf];
      encoded_[leaf].resize(rows * spec.bytes());
      views_.push_back({encoded_[leaf].data(), raw[0].rows, spec});
    }
    encoder_.encode(raw, views_, false);
    return rows;
  }

  nb::tuple outputs(std::span<const float> head, std::span<const float> value) const {
    const auto rows = static_cast<std::int64_t>(value.size());
    return nb::make_tuple(array_of(head, {rows, network_.head}), array_of(value, {rows}));
  }

  nb::dict by_name(std::span<const float> flat) const {
    nb::dict result;
    for (const auto& p : parameters_.list())
      result[p.name.c_str()] = array_of(flat.subspan(p.offset, p.numel()), p.shape);
    return result;
  }

  learn::TrainConfig config_;
  env::Space space_;
  collect::ObservationEncoder encoder_;
  learn::Parameters parameters_;
  learn::Network network_;
  std::unique_ptr<learn::ActorCritic> model_;
  std::vector<std::vector<std::byte>> encoded_;
  std::vector<shm::TensorView> views_;
};

nb::dict loss_and_derivatives(const std::string& config_json, const std::string& action_space,
                              const Floats& head, const Floats& value, const Floats& log_std,
                              const Actions& actions, const Floats& old_logp,
                              const Floats& old_value, const Floats& advantage,
                              const Floats& returns) {
  const learn::TrainConfig config = config_of(config_json);
  const collect::ActionDecoder decoder(space_of(action_space));
  const learn::ActionDistribution distribution(decoder);
  const std::size_t count = value.size();
  const std::size_t widths = distribution.head_size();
  const bool fit = count > 0 && head.size() == count * widths &&
                   log_std.size() == (decoder.is_continuous() ? widths : 0) &&
                   actions.dtype() ==
                       (decoder.is_continuous() ? nb::dtype<float>() : nb::dtype<std::int32_t>()) &&
                   actions.nbytes() == count * decoder.spec().bytes() && old_logp.size() == count &&
                   old_value.size() == count && advantage.size() == count &&
                   returns.size() == count;
  if (!fit) throw InvalidArgument("the arrays are not of the same rows");
  auto* taken = const_cast<void*>(static_cast<const void*>(actions.data()));
  const learn::LossRows rows{.head = span_of(head),
                             .value = span_of(value),
                             .log_std = span_of(log_std),
                             .actions = {static_cast<std::byte*>(taken),
                                         static_cast<std::int64_t>(value.size()), decoder.spec()},
                             .old_logp = span_of(old_logp),
                             .old_value = span_of(old_value),
                             .advantage = span_of(advantage),
                             .returns = span_of(returns)};
  const learn::LossCoefficients coefficients{
      .value_coef = static_cast<float>(config.learner().value_coef),
      .entropy_coef = static_cast<float>(config.learner().entropy_coef)};
  std::vector<float> d_head(head.size()), d_value(value.size()), d_log_std(log_std.size());
  const learn::LossDerivatives by{d_head, d_value, d_log_std};
  learn::Losses losses;
  if (const auto* ppo = std::get_if<learn::PpoConfig>(&config.algorithm)) {
    losses =
        learn::PpoLoss(distribution)(rows, clipping_of(*ppo, ppo->clip_range), coefficients, by);
  } else {
    losses = learn::A2cLoss(distribution)(rows, coefficients, by);
  }
  const auto rows_of = static_cast<std::int64_t>(count);
  nb::dict result;
  result["policy_loss"] = losses.policy;
  result["value_loss"] = losses.value;
  result["entropy"] = losses.entropy;
  result["loss"] = losses.total;
  result["d_head"] = array_of(d_head, {rows_of, static_cast<std::int64_t>(widths)});
  result["d_value"] = array_of(d_value, {rows_of});
  result["d_log_std"] = array_of(d_log_std, {static_cast<std::int64_t>(log_std.size())});
  return result;
}

nb::object optimizer_steps(const std::string& config_json, const Floats& parameters,
                           const std::vector<Floats>& gradients, double learning_rate) {
  const learn::TrainConfig config = config_of(config_json);
  const auto optimizer = learn::make_optimizer(config.learner(), parameters.size());
  std::vector<float> values(parameters.data(), parameters.data() + parameters.size());
  for (const Floats& gradient : gradients) {
    if (gradient.size() != values.size())
      throw InvalidArgument("a gradient has another size than the parameters");
    const double length = learn::norm(span_of(gradient));
    optimizer->step(values, span_of(gradient),
                    learn::clip_factor(length, config.learner().max_grad_norm), learning_rate);
  }
  return array_of(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

void bind_learn_numerics(nb::module_& module) {
  nb::class_<NetworkArithmetic>(module, "NetworkArithmetic",
                                "What a network of these spaces computes.")
      .def(nb::init<const std::string&, const std::string&, const std::string&, std::uint64_t>(),
           "observation_space"_a, "action_space"_a, "config_json"_a, "seed"_a)
      .def("weights", &NetworkArithmetic::weights,
           nb::sig("def weights(self) -> dict[str, numpy.ndarray]"))
      .def("load_weights", &NetworkArithmetic::load_weights, "weights"_a,
           nb::sig("def load_weights(self, weights: dict[str, numpy.ndarray]) -> None"))
      .def("forward", &NetworkArithmetic::forward, "observations"_a,
           nb::sig("def forward(self, observations: list[numpy.ndarray]) -> "
                   "tuple[numpy.ndarray, numpy.ndarray]"),
           "The actor's outputs and the values.")
      .def("differentiate", &NetworkArithmetic::differentiate, "observations"_a, "d_head"_a,
           "d_value"_a, "counts"_a = std::vector<std::int32_t>(), "memory"_a = nb::none(),
           nb::sig("def differentiate(self, observations: list[numpy.ndarray], d_head: "
                   "numpy.ndarray, d_value: numpy.ndarray, counts: list[int] = [], memory: "
                   "numpy.ndarray | None = None) -> tuple[tuple[numpy.ndarray, numpy.ndarray], "
                   "dict[str, numpy.ndarray]]"),
           "The outputs once more, and the derivatives by each parameter. Of LSTMs: the rows are "
           "steps of sequences, the longest first, counts[k] of which have a step k.");
  module.def("loss_and_derivatives", &loss_and_derivatives, "config_json"_a, "action_space"_a,
             "head"_a, "value"_a, "log_std"_a, "actions"_a, "old_logp"_a, "old_value"_a,
             "advantage"_a, "returns"_a,
             nb::sig("def loss_and_derivatives(config_json: str, action_space: str, head: "
                     "numpy.ndarray, value: numpy.ndarray, log_std: numpy.ndarray, actions: "
                     "numpy.ndarray, old_logp: numpy.ndarray, old_value: numpy.ndarray, advantage: "
                     "numpy.ndarray, returns: numpy.ndarray) -> dict[str, typing.Any]"),
             "The loss of ppo or a2c, and its derivatives by head, value and log_std.");
  module.def("optimizer_steps", &optimizer_steps, "config_json"_a, "parameters"_a, "gradients"_a,
             "learning_rate"_a,
             nb::sig("def optimizer_steps(config_json: str, parameters: numpy.ndarray, gradients: "
                     "list[numpy.ndarray], learning_rate: float) -> numpy.ndarray"),
             "The parameters after a step along each gradient.");
}

}  // namespace shoal::python
