// One round trip between two processes over a doorbell each way, with and without spinning, on two
// CPUs and on one; and what a ring costs that nobody waits for.
#include <benchmark/benchmark.h>

#include <vector>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::sync {
namespace {

struct Pair {
  Doorbell there, back;
};

/// Waits as the benchmark asks: with a fixed longest spin, whatever else runs on the machine.
struct FixedSpin {
  std::chrono::nanoseconds spin;
  std::chrono::nanoseconds budget() noexcept { return spin; }
  void record(std::chrono::nanoseconds, std::chrono::nanoseconds, bool,
              std::chrono::nanoseconds) noexcept {}
};

/// Answers every ring until it is killed.
template <class Policy>
int answer(Pair& pair, Policy& policy) {
  for (std::uint32_t seen = 0;;) {
    if (pair.there.wait(seen, policy, os::kNoDeadline) != WaitOutcome::kReady) continue;
    seen = pair.there.generation();
    pair.back.ring();
  }
}

template <class Policy>
void round_trips(benchmark::State& state, Policy policy, bool one_cpu) {
  const std::vector<int> all = os::cpu_set();
  const std::vector<int> mine = {all.front()};
  const std::vector<int> other = {one_cpu ? all.front() : all.back()};
  const shm::Arena arena = shm::Arena::create("benchmark", sizeof(Pair));
  Pair& pair = *arena.at<Pair>(0);
  os::testing::Child peer([&] {
    os::set_cpu_set(other);
    return answer(pair, policy);
  });
  os::set_cpu_set(mine);
  std::uint32_t seen = 0;
  for (auto _ : state) {
    pair.there.ring();
    while (pair.back.wait(seen, policy, os::kNoDeadline) != WaitOutcome::kReady) {
    }
    seen = pair.back.generation();
  }
  os::set_cpu_set(all);
}

void round_trip_parked(benchmark::State& state) {
  round_trips(state, FixedSpin{std::chrono::nanoseconds(0)}, state.range(0) == 1);
}
BENCHMARK(round_trip_parked)->ArgName("cpus")->Arg(2)->Arg(1)->UseRealTime();

void round_trip_spun(benchmark::State& state) {
  round_trips(state, FixedSpin{std::chrono::microseconds(400)}, state.range(0) == 1);
}
BENCHMARK(round_trip_spun)->ArgName("cpus")->Arg(2)->Arg(1)->UseRealTime();

void round_trip_by_policy(benchmark::State& state) {
  const int cpus = static_cast<int>(state.range(0));
  round_trips(state, SpinPolicy({.group_size = 2}, CpuLoad(), cpus), cpus == 1);
}
BENCHMARK(round_trip_by_policy)->ArgName("cpus")->Arg(2)->Arg(1)->UseRealTime();

void ring_nobody_waits_for(benchmark::State& state) {
  Doorbell door{};
  for (auto _ : state) benchmark::DoNotOptimize(door.ring());
}
BENCHMARK(ring_nobody_waits_for);

}  // namespace
}  // namespace shoal::sync
