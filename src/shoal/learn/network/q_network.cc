#include "shoal/learn/network/q_network.h"

#include <algorithm>
#include <numeric>

#include "shoal/learn/network/feature_input.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/mlp_layers.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;  // when nothing is kept: activations stay in the cache

class FusedQNetwork final : public QNetwork {
 public:
  FusedQNetwork(const QLayers& layers, const Parameters& parameters)
      : width_(layers.features.width),
        actions_(layers.actions),
        dueling_(layers.dueling()),
        input_(layers.features, parameters, mlp_kernels().front(), compute_threads()),
        trunk_(layers.trunk, layers.activation, parameters),
        value_(layers.value, layers.activation, parameters),
        advantage_(layers.advantage, layers.activation, parameters) {}

  void forward(std::span<const shm::TensorView> obs, std::span<float> q) override {
    const std::int64_t all = obs[0].rows;
    for (std::int64_t from = 0; from < all; from += kRowsAtOnce) {
      const std::int64_t rows = std::min(kRowsAtOnce, all - from);
      run(input_.forward(obs, from, rows), rows,
          q.subspan(static_cast<std::size_t>(from * actions_),
                    static_cast<std::size_t>(rows * actions_)));
    }
  }

  void forward_train(std::span<const shm::TensorView> obs, std::span<float> q) override {
    rows_ = obs[0].rows;
    order_.resize(static_cast<std::size_t>(rows_));
    std::iota(order_.begin(), order_.end(), 0);
    run(input_.forward_train(obs, order_), rows_, q);
  }

  void backward(std::span<const float> d_q, std::span<float> gradient) override {
    if (dueling_)
      back_through_streams(d_q, gradient);
    else
      trunk_.take_delta(d_q);
    if (!trunk_.empty()) trunk_.backward(input_.kept(), rows_, gradient);
    if (!input_.has_images()) return;
    float* d_input = d_input_.room(rows_ * padded(width_));
    if (trunk_.empty())
      MlpChain::backward_shared_input(advantage_, value_, rows_, d_input, from_value_);
    else
      trunk_.backward_input(rows_, d_input);
    input_.backward(d_input, gradient);
  }

  void parameters_changed() override {
    input_.parameters_changed();
    for (MlpChain* chain : {&trunk_, &value_, &advantage_}) chain->parameters_changed();
  }

  ThreadTeam* team() noexcept override { return input_.team(); }

 private:
  /// To the gradient of both streams' parameters, and to the trunk's delta where there is one.
  void back_through_streams(std::span<const float> d_q, std::span<float> gradient) {
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
  }

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

  const std::int64_t width_;
  const std::int64_t actions_;
  const bool dueling_;
  FeatureInput input_;
  MlpChain trunk_, value_, advantage_;
  FloatRows features_;  // of the last rows
  std::int64_t rows_ = 0;
  std::vector<std::int32_t> order_;  // 0, 1, …: forward_train() takes all rows
  AlignedFloats from_value_;         // [rows][padded trunk, or padded width without one]
  AlignedFloats d_input_;            // [rows][padded width]
};

}  // namespace

QLayers QLayers::create(const collect::ObservationEncoder& obs, std::int64_t actions, bool dueling,
                        const LearnerConfig& config, Parameters& parameters) {
  QLayers layers;
  layers.features = Features::create(obs, config, parameters);
  layers.actions = actions;
  layers.activation = config.activation;
  std::span<const int> hidden = config.policy_hidden;
  if (!dueling) {
    layers.trunk = add_mlp(parameters, "q", layers.features.width, hidden, actions, 1.0);
  } else {
    const std::size_t of_streams = hidden.empty() ? 0 : 1;
    const auto shared = hidden.first(hidden.size() - of_streams);
    const std::int64_t width = shared.empty() ? layers.features.width : shared.back();
    layers.trunk = add_mlp(parameters, "trunk", layers.features.width, shared, 0, 0.0);
    layers.value = add_mlp(parameters, "value", width, hidden.last(of_streams), 1, 1.0);
    layers.advantage =
        add_mlp(parameters, "advantage", width, hidden.last(of_streams), actions, 1.0);
  }
  parameters.build();
  return layers;
}

void QLayers::initialize(Parameters& parameters, const LearnerConfig& config,
                         const Philox& random) const {
  features.initialize(parameters, config.orthogonal_init, random);
  for (const Mlp* mlp : {&trunk, &value, &advantage})
    for (const Layer& layer : *mlp)
      initialize_layer(layer, parameters, config.orthogonal_init, random);
}

std::unique_ptr<QNetwork> make_q_network(const QLayers& layers, const Parameters& parameters) {
  return std::make_unique<FusedQNetwork>(layers, parameters);
}

}  // namespace shoal::learn
