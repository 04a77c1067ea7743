// What a step costs where parameters and averages are shared, and how many steps are lost where
// several processes step them at once and do nothing else: the worst case, as an actor computes a
// gradient between two steps.
//
// own: memory that nobody shares; shared: the same formula, by one alone; lost: the caller and
// `others` processes more step as fast as they can. With alpha 1 and gradients of 1 each step takes
// 1 away from each parameter, so what is missing was lost: lost_percent.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <list>
#include <memory>
#include <numeric>
#include <vector>

#include "shoal/learn/network/parameters.h"
#include "shoal/learn/optimizer/rmsprop.h"
#include "shoal/learn/optimizer/shared_optimizer.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"

namespace shoal::learn {
namespace {

using sync::RelaxedFloats;

constexpr std::size_t kCartPole = 9'344;  // of two MLPs of 64 x 64, gaps included
constexpr std::size_t kNature = 1'700'000;
constexpr RmsPropOptions kExact{.alpha = 1, .eps = 0, .tensorflow = true};

LearnerConfig with(OptimizerKind kind) {
  LearnerConfig config;
  config.optimizer = kind;
  return config;
}

/// Parameters and two averages in an arena, as A3C's actors have them.
class Memory {
 public:
  explicit Memory(std::size_t size)
      : words_(size / RelaxedFloats::kInWord),
        arena_(shm::Arena::create("benchmark", 64 + 3 * size * sizeof(float))) {}

  SharedParameters view() const {
    return {.parameters = part(0),
            .averages = {part(1), part(2)},
            .steps = arena_.at<RelaxedFloats::Word>(0)};
  }

 private:
  RelaxedFloats part(std::size_t which) const {
    const std::size_t offset = 64 + which * words_ * sizeof(RelaxedFloats::Word);
    return RelaxedFloats({arena_.at<RelaxedFloats::Word>(offset, words_), words_});
  }

  std::size_t words_;
  shm::Arena arena_;
};

void own(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const auto optimizer = make_optimizer(with(static_cast<OptimizerKind>(state.range(1))), size);
  AlignedFloats parameters(size);
  const std::vector<float> gradient(size, 0.5F);
  for (auto _ : state) optimizer->step(parameters.span(), gradient, 1.0, 1e-4);
}

void shared(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const auto kind = static_cast<OptimizerKind>(state.range(1));
  const Memory memory(size);
  AlignedFloats parameters(size);
  memory.view().write(parameters.span(), *make_optimizer(with(kind), size));
  SharedOptimizer optimizer(make_optimizer(with(kind), 0), memory.view());
  const std::vector<float> gradient(size, 0.5F);
  for (auto _ : state) optimizer.step(parameters.span(), gradient, 1.0, 1e-4);
}

constexpr int kAdam = static_cast<int>(OptimizerKind::kAdam);
constexpr int kRmsProp = static_cast<int>(OptimizerKind::kRmsProp);
BENCHMARK(own)
    ->ArgNames({"floats", "optimizer"})
    ->ArgsProduct({{kCartPole, kNature}, {kAdam, kRmsProp}});
BENCHMARK(shared)
    ->ArgNames({"floats", "optimizer"})
    ->ArgsProduct({{kCartPole, kNature}, {kAdam, kRmsProp}});

void lost(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const Memory memory(size);
  const auto step_on = [&](auto go_on) {
    SharedOptimizer optimizer(std::make_unique<RmsProp>(0, kExact), memory.view());
    AlignedFloats parameters(size);
    const std::vector<float> gradient(size, 1.0F);
    while (go_on()) optimizer.step(parameters.span(), gradient, 1.0, 1.0);
  };
  double missing = 0;
  double made = 0;
  for (auto _ : state) {
    constexpr int kSteps = 200;
    RmsProp start(size, kExact);
    memory.view().write(std::vector<float>(size, 0.0F), start);
    const auto some = [left = kSteps]() mutable { return left-- > 0; };
    {
      std::list<os::testing::Child> others;
      for (int other = 0; other < state.range(1); ++other)
        others.emplace_back([&]() -> int {
          step_on(some);
          return 0;
        });
      step_on(some);
      for (auto& other : others) other.join();
    }
    std::vector<float> parameters(size);
    memory.view().read(parameters, start);
    const double found = -std::accumulate(parameters.begin(), parameters.end(), 0.0);
    made += static_cast<double>(start.steps()) * static_cast<double>(size);
    missing += static_cast<double>(start.steps()) * static_cast<double>(size) - found;
  }
  state.counters["lost_percent"] = 100 * missing / made;
}
BENCHMARK(lost)
    ->ArgNames({"floats", "others"})
    ->ArgsProduct({{kCartPole, kNature}, {0, 1, 3}})
    ->UseRealTime();

}  // namespace
}  // namespace shoal::learn
