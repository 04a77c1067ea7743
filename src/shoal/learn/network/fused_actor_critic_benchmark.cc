// What networks for images cost: each layer of the Nature CNN by itself, acting, and a whole minibatch
// forward and backward, in float32 and in bfloat16 (where an instruction multiplies it); and what one
// thread of the processor can do at most. `GFLOP/s` counts a multiplication and an addition as two.
//
// Arguments: rows, then threads where there are several. Of convolutions one image is computed after
// the other, as a thread does.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shoal/learn/network/bfloat16_linear.h"
#include "shoal/learn/network/convolution.h"
#include "shoal/learn/network/fused_actor_critic.h"
#include "shoal/learn/network/wide_linear.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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
  explicit Atari(std::int64_t rows, Precision precision = Precision::kFloat32)
      : config{.policy_hidden = {},
               .value_hidden = {},
               .orthogonal_init = false,
               .precision = precision},
        network(Network::create(
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

  LearnerConfig config;
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

void acting(benchmark::State& state, Precision precision) {
  Atari atari(state.range(0), precision);
  FusedActorCritic model(atari.network, atari.parameters, mlp_kernels().front(),
                         static_cast<int>(state.range(1)));
  for (auto _ : state) model.forward(atari.obs, {}, atari.head, atari.value);
  count(state, kForward * static_cast<double>(state.range(0)));
}

void minibatch(benchmark::State& state, Precision precision) {
  Atari atari(state.range(0), precision);
  FusedActorCritic model(atari.network, atari.parameters, mlp_kernels().front(),
                         static_cast<int>(state.range(1)));
  for (auto _ : state) {
    model.parameters_changed();
    model.forward_train(atari.obs, Sequences(atari.order), atari.head, atari.value);
    model.backward(atari.head, atari.value, atari.gradient);
  }
  count(state, kTraining * static_cast<double>(state.range(0)));
}

/// Numbers of the layers below in float32, or as pairs of bfloat16, half as many.
template <class Element>
Aligned<Element> elements(std::int64_t n) {
  const std::vector<float> from = numbers(n);
  if constexpr (std::is_same_v<Element, float>) {
    Aligned<float> to(from.size());
    std::ranges::copy(from, to.data());
    return to;
  } else {
    Aligned<Bfloat16Pair> to(from.size() / 2);
    for (std::size_t k = 0; k < to.size(); ++k)
      to.data()[k] = bfloat16_pair(from[2 * k], from[2 * k + 1]);
    return to;
  }
}

template <class Layers>
constexpr bool kIsBfloat16 =
    std::is_same_v<Layers, Bfloat16Convolution> || std::is_same_v<Layers, Bfloat16Linear>;
template <class Layers>
using ElementOf = std::conditional_t<kIsBfloat16<Layers>, Bfloat16Pair, float>;

/// One layer over `rows` images that lie one after the other.
template <class Layers>
struct OneLayer {
  static constexpr std::int64_t kNumbers = kIsBfloat16<Layers> ? 2 : 1;  // of an element

  OneLayer(std::size_t which, std::int64_t rows)
      : tower(Atari(1).network.features.images[0]),
        layer(tower.convolutions[which]),
        shape{kConvolutions[which][0], kConvolutions[which][1], kConvolutions[which][2]},
        convolution(layer, shape, mlp_kernels().front()),
        in(elements<ElementOf<Layers>>(rows * shape.size())),
        delta(elements<ElementOf<Layers>>(rows * convolution.out().size())),
        bordered(static_cast<std::size_t>(convolution.bordered_size())),
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
  const ElementOf<Layers>* input(std::int64_t row) const {
    return in.data() + row * shape.size() / kNumbers;
  }
  const ElementOf<Layers>* derivative(std::int64_t row) const {
    return delta.data() + row * convolution.out().size() / kNumbers;
  }

  ImageTower tower;
  Layer layer;
  ImageShape shape;
  Layers convolution;
  Aligned<ElementOf<Layers>> in, delta, bordered;
  std::vector<float> out, d_in, gradient;
  double flop;
};

template <class Layers>
void layer_forward(benchmark::State& state, std::size_t which) {
  OneLayer<Layers> one(which, state.range(0));
  for (auto _ : state) {
    for (std::int64_t r = 0; r < state.range(0); ++r)
      one.convolution.forward(one.input(r), one.output(r));
  }
  count(state, one.flop);
}

/// Of bfloat16 two images at a time, which lie as pairs of both.
template <class Layers>
void layer_weight_gradient(benchmark::State& state, std::size_t which) {
  OneLayer<Layers> one(which, state.range(0));
  for (auto _ : state) {
    for (std::int64_t r = 0; r < state.range(0); r += one.kNumbers)
      one.convolution.add_gradient(one.input(r), one.derivative(r), one.gradient.data());
  }
  count(state, one.flop);
}

template <class Layers>
void layer_input_gradient(benchmark::State& state, std::size_t which) {
  OneLayer<Layers> one(which, state.range(0));
  for (auto _ : state) {
    for (std::int64_t r = 0; r < state.range(0); ++r)
      one.convolution.input_gradient(one.derivative(r), one.bordered.data(), one.d_in.data());
  }
  count(state, one.flop);
}

/// The linear layer, 3136 to 512, of one thread.
template <class Layers>
struct Linear {
  explicit Linear(std::int64_t rows)
      : layer(Atari(1).network.features.images[0].linear),
        team(1),
        linear(layer, mlp_kernels().front(), team),
        weight(numbers(layer.in * layer.out)),
        x(elements<ElementOf<Layers>>(rows * layer.in)),
        y(numbers(rows * layer.out)),
        d_x(static_cast<std::size_t>(rows * layer.in)),
        d_weight(weight.size()),
        d_bias(static_cast<std::size_t>(layer.out)),
        flop(2.0 * static_cast<double>(rows * layer.in * layer.out)) {
    linear.pack(weight, numbers(layer.out));
  }
  Layer layer;
  ThreadTeam team;
  Layers linear;
  std::vector<float> weight;
  Aligned<ElementOf<Layers>> x;
  std::vector<float> y, d_x, d_weight, d_bias;
  double flop;
};

template <class Layers>
void linear_forward(benchmark::State& state) {
  Linear<Layers> of(state.range(0));
  for (auto _ : state) {
    if constexpr (kIsBfloat16<Layers>)
      of.linear.forward(of.x.data(), state.range(0), of.y.data(), of.layer.out);
    else
      of.linear.forward({of.x.data(), state.range(0), of.layer.in}, of.y.data(), of.layer.out);
  }
  count(state, of.flop);
}

template <class Layers>
void linear_backward(benchmark::State& state) {
  Linear<Layers> of(state.range(0));
  for (auto _ : state) {
    if constexpr (kIsBfloat16<Layers>)
      of.linear.backward(of.x.data(), state.range(0), of.y.data(), of.d_weight, of.d_bias,
                         of.d_x.data());
    else
      of.linear.backward({of.x.data(), state.range(0), of.layer.in}, of.y.data(), of.weight,
                         of.d_weight, of.d_bias, of.d_x.data());
  }
  count(state, 2 * of.flop);
}

// What a thread can do: products of registers alone, more at once than an instruction takes cycles.
#if defined(__x86_64__)
constexpr int kSums = 24;
constexpr int kTimes = 10'000;

__attribute__((target("avx512f"))) float multiply_floats() {
  __m512 sums[kSums] = {};
  const __m512 a = _mm512_set1_ps(1e-9F), b = _mm512_set1_ps(0.5F);
  for (int k = 0; k < kTimes; ++k) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
#pragma GCC unroll 24
    for (auto& sum : sums) asm volatile("" : "+v"(sum));  // each is one of its own
  }
  return sums[0][0];
}

__attribute__((target("avx512f,avx512bf16"))) float multiply_bfloat16() {
  __m512 sums[kSums] = {};
  const auto a = (__m512bh)_mm512_set1_epi32(static_cast<int>(bfloat16_pair(1e-9F, 1e-9F)));
  const auto b = (__m512bh)_mm512_set1_epi32(static_cast<int>(bfloat16_pair(0.5F, 0.5F)));
  for (int k = 0; k < kTimes; ++k) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, a, b);
#pragma GCC unroll 24
    for (auto& sum : sums) asm volatile("" : "+v"(sum));
  }
  return sums[0][0];
}

void peak(benchmark::State& state, float (*multiply)(), double flop) {
  for (auto _ : state) benchmark::DoNotOptimize(multiply());
  count(state, flop * kSums * kTimes);
}
#endif

template <class Convolutions, class Linears>
void register_layers(const std::string& numbers) {
  const auto add = [&](const std::string& name, auto run) {
    return benchmark::RegisterBenchmark((name + numbers).c_str(), run)
        ->Unit(benchmark::kMillisecond);
  };
  for (std::size_t k = 0; k < std::size(kConvolutions); ++k) {
    const std::string which = "/convolution_" + std::to_string(k + 1);
    const auto add_layer = [&](const std::string& name, auto run) {
      add("layer_" + name + which, [run, k](benchmark::State& state) { run(state, k); })->Arg(256);
    };
    add_layer("forward", layer_forward<Convolutions>);
    add_layer("weight_gradient", layer_weight_gradient<Convolutions>);
    if (k > 0) add_layer("input_gradient", layer_input_gradient<Convolutions>);
  }
  add("linear_forward", linear_forward<Linears>)->Arg(8)->Arg(256);
  add("linear_backward", linear_backward<Linears>)->Arg(256);
}

void register_networks(const std::string& numbers, Precision precision) {
  for (const auto& [name, run] :
       {std::pair("acting", &acting), std::pair("minibatch", &minibatch)}) {
    benchmark::RegisterBenchmark((name + numbers).c_str(),
                                 [run, precision](benchmark::State& s) { run(s, precision); })
        ->ArgsProduct({{8, 256}, {1, 2}})
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

}  // namespace

void register_all() {
  register_layers<Convolution, WideLinear>("");
  register_networks("", Precision::kFloat32);
  const bool bfloat16 = mlp_kernels().front().bfloat16_is_faster;
  if (bfloat16) {
    register_layers<Bfloat16Convolution, Bfloat16Linear>("/bfloat16");
    register_networks("/bfloat16", Precision::kBfloat16);
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    benchmark::RegisterBenchmark("peak", [](benchmark::State& s) { peak(s, multiply_floats, 32); });
  if (bfloat16)
    benchmark::RegisterBenchmark("peak/bfloat16",
                                 [](benchmark::State& s) { peak(s, multiply_bfloat16, 64); });
#endif
}

}  // namespace shoal::learn

int main(int argc, char** argv) {
  shoal::learn::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
