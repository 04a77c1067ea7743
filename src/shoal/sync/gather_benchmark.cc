// A round of the worker loop: a caller rings, two workers work for a given time, the last arrival
// wakes the caller. The counter `overhead_us` is what a round takes beyond the work itself.
#include <benchmark/benchmark.h>

#include <chrono>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::sync {
namespace {

constexpr int kWorkers = 2;

struct Segment {
  Doorbell door;
  Gather gather;
};

void work_for(std::chrono::nanoseconds time) {
  for (const auto end = os::deadline_after(time); os::Clock::now() < end;) pause();
}

/// Works every round until it is killed; `cap` is the longest spin.
[[noreturn]] void work(Segment& segment, std::chrono::nanoseconds time,
                       std::chrono::nanoseconds cap) {
  SpinPolicy policy({.cap = cap, .group_size = kWorkers});
  for (std::uint32_t seen = 0;;) {
    if (segment.door.wait(seen, policy, os::kNoDeadline) != WaitOutcome::kReady) continue;
    seen = segment.door.generation();
    work_for(time);
    segment.gather.arrive(seen);
  }
}

void rounds(benchmark::State& state) {
  const std::chrono::microseconds time(state.range(0)), cap(state.range(1));
  const shm::Arena arena = shm::Arena::create("benchmark", sizeof(Segment));
  Segment& segment = *arena.at<Segment>(0);
  // Work is never quite the same for two workers.
  os::testing::Child first([&]() -> int { work(segment, time, cap); });
  os::testing::Child second([&]() -> int { work(segment, time * 9 / 10, cap); });
  const auto begin = os::Clock::now();
  for (auto _ : state) {
    segment.gather.start(segment.door.generation() + 1, kWorkers);
    segment.door.ring();
    while (segment.gather.park(os::kNoDeadline) != WaitOutcome::kReady) {
    }
  }
  const std::chrono::duration<double, std::micro> elapsed = os::Clock::now() - begin;
  state.counters["overhead_us"] =
      elapsed.count() / static_cast<double>(state.iterations()) - static_cast<double>(time.count());
}
BENCHMARK(rounds)
    ->ArgNames({"work_us", "cap_us"})
    ->ArgsProduct({{20, 100, 400, 2000}, {0, 400}})
    ->UseRealTime();

}  // namespace
}  // namespace shoal::sync
