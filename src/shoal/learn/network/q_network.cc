#include "shoal/learn/network/q_network.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/mlp_layers.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;  // when nothing is kept: activations stay in the cache

class FusedQNetwork final : public QNetwork {
 public:
  FusedQNetwork(const QLayers& layers, const Parameters& parameters)
      : dense_(layers.dense),
        actions_(layers.actions),
        dueling_(layers.dueling()),
        trunk_(layers.trunk, layers.activation, parameters),
        value_(layers.value, layers.activation, parameters),
        advantage_(layers.advantage, layers.activation, parameters) {}

  void forward(std::span<const shm::TensorView> obs, std::span<float> q) override {
    const std::int64_t all = obs[0].rows;
    const auto* x = reinterpret_cast<const float*>(obs[0].data);
    for (std::int64_t from = 0; from < all; from += kRowsAtOnce) {
      const std::int64_t rows = std::min(kRowsAtOnce, all - from);
      run({x + from * dense_, dense_}, rows,
          q.subspan(static_cast<std::size_t>(from * actions_),
                    static_cast<std::size_t>(rows * actions_)));
    }
  }

  void forward_train(std::span<const shm::TensorView> obs, std::span<float> q) override {
    rows_ = obs[0].rows;
    copy_padded(
        {reinterpret_cast<const float*>(obs[0].data), static_cast<std::size_t>(rows_ * dense_)},
        dense_, input_.room(rows_ * padded(dense_)));
    run({input_.data(), padded(dense_)}, rows_, q);
  }

  void backward(std::span<const float> d_q, std::span<float> gradient) override {
    const FloatRows x{input_.data(), padded(dense_)};
    if (!dueling_) {
      trunk_.take_delta(d_q);
      trunk_.backward(x, rows_, gradient);
      return;
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      const float* from = d_q.data() + r * actions_;
      float* to = advantage_.delta() + r * advantage_.delta_stride();
      float sum = 0;
      for (std::int64_t a = 0; a < actions_; ++a) sum += from[a];
      value_.delta()[r * value_.delta_stride()] = sum;
      for (std::int64_t a = 0; a < actions_; ++a)
        to[a] = from[a] - sum / static_cast<float>(actions_);
    }
    value_.backward(features_, rows_, gradient);
    advantage_.backward(features_, rows_, gradient);
    if (trunk_.empty()) return;
    MlpChain::backward_shared_input(advantage_, value_, rows_, trunk_.delta(), from_value_,
                                    &features_);
    trunk_.backward(x, rows_, gradient);
  }

  void parameters_changed() override {
    trunk_.parameters_changed();
    value_.parameters_changed();
    advantage_.parameters_changed();
  }

 private:
  void run(FloatRows x, std::int64_t rows, std::span<float> q) {
    features_ = trunk_.forward(x, rows);
    if (!dueling_) {
      features_.copy_to(q, rows, actions_);
      return;
    }
    const FloatRows value = value_.forward(features_, rows);
    const FloatRows advantage = advantage_.forward(features_, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* of = advantage.row(r);
      float sum = 0;
      for (std::int64_t a = 0; a < actions_; ++a) sum += of[a];
      const float base = value.row(r)[0] - sum / static_cast<float>(actions_);
      for (std::int64_t a = 0; a < actions_; ++a)
        q[static_cast<std::size_t>(r * actions_ + a)] = base + of[a];
    }
  }

  const std::int64_t dense_;
  const std::int64_t actions_;
  const bool dueling_;
  MlpChain trunk_, value_, advantage_;
  FloatRows features_;  // of the last rows
  std::int64_t rows_ = 0;
  AlignedFloats input_;       // [rows][padded dense]
  AlignedFloats from_value_;  // [rows][padded trunk]
};

}  // namespace

void refuse_images(const collect::ObservationEncoder& obs, const char* algorithm) {
  if (obs.image_paths().empty()) return;
  const std::string& path = obs.image_paths().front();
  throw InvalidArgument(fmt::format(
      "{} does not learn from images so far, and the observations have one{}. ppo, a2c, impala and "
      "appo do; or let the environment give a vector of features",
      algorithm, path.empty() ? "" : fmt::format(" ('{}')", path)));
}

QLayers QLayers::create(const collect::ObservationEncoder& obs, std::int64_t actions, bool dueling,
                        const LearnerConfig& config, Parameters& parameters) {
  QLayers layers;
  layers.dense = obs.dense();
  layers.actions = actions;
  layers.activation = config.activation;
  std::span<const int> hidden = config.policy_hidden;
  if (!dueling) {
    layers.trunk = add_mlp(parameters, "q", layers.dense, hidden, actions, 1.0);
  } else {
    const std::size_t of_streams = hidden.empty() ? 0 : 1;
    const auto shared = hidden.first(hidden.size() - of_streams);
    const std::int64_t width = shared.empty() ? layers.dense : shared.back();
    layers.trunk = add_mlp(parameters, "trunk", layers.dense, shared, 0, 0.0);
    layers.value = add_mlp(parameters, "value", width, hidden.last(of_streams), 1, 1.0);
    layers.advantage =
        add_mlp(parameters, "advantage", width, hidden.last(of_streams), actions, 1.0);
  }
  parameters.build();
  return layers;
}

void QLayers::initialize(Parameters& parameters, const LearnerConfig& config,
                         const Philox& random) const {
  for (const Mlp* mlp : {&trunk, &value, &advantage})
    for (const Layer& layer : *mlp)
      initialize_layer(layer, parameters, config.orthogonal_init, random);
}

std::unique_ptr<QNetwork> make_q_network(const QLayers& layers, const Parameters& parameters) {
  return std::make_unique<FusedQNetwork>(layers, parameters);
}

}  // namespace shoal::learn
