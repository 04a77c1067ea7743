// What a step of each environment costs without an engine: one at a time, 15 (none of them in
// lanes, see BatchOf), 16 and 1024 together. Ended episodes are reset.
#include <benchmark/benchmark.h>

#include "shoal/env/registry.h"
#include "shoal/env/testing/batch_arrays.h"

namespace shoal::env {
namespace {

void step(benchmark::State& state, const char* id) {
  const int count = static_cast<int>(state.range(0));
  const auto batch = make_batch(id, count);
  BatchArrays arrays(*batch);
  for (int i = 0; i < count; ++i) batch->reset(i, i);
  for (auto _ : state) {
    batch->step_range(0, count);
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if ((arrays.terminated[at] | arrays.truncated[at]) != 0) batch->reset(i, {});
    }
  }
  state.SetItemsProcessed(state.iterations() * count);
}

#define SHOAL_BENCHMARK_STEP(name, id) \
  BENCHMARK_CAPTURE(step, name, id)->Arg(1)->Arg(15)->Arg(16)->Arg(1024)

SHOAL_BENCHMARK_STEP(cartpole, "shoal/CartPole-v1");
SHOAL_BENCHMARK_STEP(pendulum, "shoal/Pendulum-v1");
SHOAL_BENCHMARK_STEP(acrobot, "shoal/Acrobot-v1");
SHOAL_BENCHMARK_STEP(mountain_car, "shoal/MountainCar-v0");
SHOAL_BENCHMARK_STEP(mountain_car_continuous, "shoal/MountainCarContinuous-v0");
SHOAL_BENCHMARK_STEP(segmented_world, "shoal/SegmentedWorld-v0");

}  // namespace
}  // namespace shoal::env
