// What networks for images cost: each layer of the Nature CNN by itself, acting, and a whole minibatch
// forward and backward. `GFLOP/s` counts a multiplication and an addition as two.
//
// Arguments: rows, then threads where there are several. Of convolutions one image is computed after
// the other, as a thread does.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "shoal/learn/network/convolution.h"
#include "shoal/learn/network/fused_actor_critic.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kConvolutions[][3] = {{4, 84, 84}, {32, 20, 20}, {64, 9, 9}};

void count(benchmark::State& state, double flop) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flop * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

std::vector<float> numbers(std::int64_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<std::size_t>(n));
  for (auto& x : out) x = normal(random);
  return out;
}

/// Atari's observations and 6 actions, as the preset cleanrl_atari has it.
struct Atari {
  explicit Atari(std::int64_t rows)
      : network(Network::create(
            collect::ObservationEncoder(
                env::Space{env::Box{{shm::DType::kU8, {4, 84, 84}}, {0}, {255}}}),
            collect::ActionDecoder(env::Space{env::Discrete{.n = 6}}), config, parameters)),
        bytes(static_cast<std::size_t>(rows * 4 * 84 * 84)),
        head(static_cast<std::size_t>(rows * 6)),
        value(static_cast<std::size_t>(rows)),
        order(static_cast<std::size_t>(rows)),
        gradient(parameters.flat().size()) {
    network.initialize(parameters, config, Philox(1));
    std::mt19937 random(1);
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    std::iota(order.begin(), order.end(), 0);
    obs = {{bytes.data(), rows, {shm::DType::kU8, {4, 84, 84}}}};
  }

  LearnerConfig config{.policy_hidden = {}, .value_hidden = {}, .orthogonal_init = false};
  Parameters parameters;
  Network network;
  std::vector<std::byte> bytes;
  std::vector<shm::TensorView> obs;
  std::vector<float> head, value;
  std::vector<std::int32_t> order;
  std::vector<float> gradient;
};

constexpr double kForward = 2 * (3'276'800.0 + 2'654'208 + 1'806'336 + 1'605'632 + 7 * 512);
constexpr double kTraining = 3 * kForward - 2 * 3'276'800.0;  // the first layer's input has none

void acting(benchmark::State& state) {
  Atari atari(state.range(0));
  FusedActorCritic model(atari.network, atari.parameters, mlp_kernels().front(),
                         static_cast<int>(state.range(1)));
  for (auto _ : state) model.forward(atari.obs, {}, atari.head, atari.value);
  count(state, kForward * static_cast<double>(state.range(0)));
}

void minibatch(benchmark::State& state) {
  Atari atari(state.range(0));
  FusedActorCritic model(atari.network, atari.parameters, mlp_kernels().front(),
                         static_cast<int>(state.range(1)));
  for (auto _ : state) {
    model.parameters_changed();
    model.forward_train(atari.obs, Sequences(atari.order), atari.head, atari.value);
    model.backward(atari.head, atari.value, atari.gradient);
  }
  count(state, kTraining * static_cast<double>(state.range(0)));
}

/// One layer over `rows` images that lie one after the other.
struct OneLayer {
  OneLayer(std::size_t which, std::int64_t rows)
      : tower(Atari(1).network.features.images[0]),
        layer(tower.convolutions[which]),
        shape{kConvolutions[which][0], kConvolutions[which][1], kConvolutions[which][2]},
        convolution(layer, shape, mlp_kernels().front()),
        in(numbers(rows * shape.size())),
        out(numbers(rows * convolution.out().size())),
        d_in(static_cast<std::size_t>(shape.size())),
        gradient(static_cast<std::size_t>(convolution.gradient_size())),
        flop(2.0 * static_cast<double>(rows * convolution.out().size() * layer.in * layer.kernel *
                                       layer.kernel)) {
    const auto weight = numbers(layer.out * layer.in * layer.kernel * layer.kernel);
    convolution.pack_forward(weight, numbers(layer.out));
    if (which > 0) convolution.pack_backward(weight);
  }
  float* output(std::int64_t row) { return out.data() + row * convolution.out().size(); }
  const float* input(std::int64_t row) const { return in.data() + row * shape.size(); }

  ImageTower tower;
  Layer layer;
  ImageShape shape;
  Convolution convolution;
  std::vector<float> in, out, d_in, gradient;
  double flop;
};

void layer_forward(benchmark::State& state, std::size_t which) {
  OneLayer one(which, state.range(0));
  for (auto _ : state) {
    for (std::int64_t r = 0; r < state.range(0); ++r)
      one.convolution.forward(one.input(r), one.output(r));
  }
  count(state, one.flop);
}

void layer_weight_gradient(benchmark::State& state, std::size_t which) {
  OneLayer one(which, state.range(0));
  for (auto _ : state) {
    for (std::int64_t r = 0; r < state.range(0); ++r)
      one.convolution.add_gradient(one.input(r), one.output(r), one.gradient.data());
  }
  count(state, one.flop);
}

void layer_input_gradient(benchmark::State& state, std::size_t which) {
  OneLayer one(which, state.range(0));
  for (auto _ : state) {
    for (std::int64_t r = 0; r < state.range(0); ++r)
      one.convolution.input_gradient(one.output(r), one.d_in.data());
  }
  count(state, one.flop);
}

/// The linear layer, 3136 to 512, of one thread.
struct Linear {
  explicit Linear(std::int64_t rows)
      : layer(Atari(1).network.features.images[0].linear),
        team(1),
        linear(layer, mlp_kernels().front(), team),
        weight(numbers(layer.in * layer.out)),
        x(numbers(rows * layer.in)),
        y(numbers(rows * layer.out)),
        d_x(x.size()),
        d_weight(weight.size()),
        d_bias(static_cast<std::size_t>(layer.out)),
        flop(2.0 * static_cast<double>(rows * layer.in * layer.out)) {
    linear.pack(weight, numbers(layer.out));
  }
  Layer layer;
  ThreadTeam team;
  WideLinear linear;
  std::vector<float> weight, x, y, d_x, d_weight, d_bias;
  double flop;
};

void linear_forward(benchmark::State& state) {
  Linear of(state.range(0));
  for (auto _ : state)
    of.linear.forward({of.x.data(), state.range(0), of.layer.in}, of.y.data(), of.layer.out);
  count(state, of.flop);
}

void linear_backward(benchmark::State& state) {
  Linear of(state.range(0));
  for (auto _ : state)
    of.linear.backward({of.x.data(), state.range(0), of.layer.in}, of.y.data(), of.weight,
                       of.d_weight, of.d_bias, of.d_x.data());
  count(state, 2 * of.flop);
}

BENCHMARK_CAPTURE(layer_forward, convolution_1, 0)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_weight_gradient, convolution_1, 0)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_forward, convolution_2, 1)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_weight_gradient, convolution_2, 1)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_input_gradient, convolution_2, 1)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_forward, convolution_3, 2)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_weight_gradient, convolution_3, 2)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_input_gradient, convolution_3, 2)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK(linear_forward)->Arg(8)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK(linear_backward)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK(acting)->ArgsProduct({{8, 256}, {1, 2}})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(minibatch)->ArgsProduct({{8, 256}, {1, 2}})->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace shoal::learn
