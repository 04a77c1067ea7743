// What a sum of two ranks takes: on one host, and between two that are connected by TCP (loopback).
#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

#include "shoal/group/group.h"
#include "shoal/group/testing/layouts.h"
#include "shoal/os/testing/child.h"

namespace shoal::group {
namespace {

/// Sums of as many floats as the state says, in this process and a child, until the state has
/// enough.
void sum(benchmark::State& state, const testing::Layout& layout) {
  const auto launches = testing::launches(layout);
  const auto count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  os::testing::Child other([&] {
    const auto group = Group::join(launches[1]);
    std::vector<float> values(count + 1);
    do group->sum(values);
    while (values.back() == 0);  // the last element: whether it was the last sum
    return 0;
  });
  const auto group = Group::join(launches[0]);
  std::vector<float> values(count + 1);
  for (auto _ : state) group->sum(values);
  values.back() = 1;
  group->sum(values);
  other.join();
}

BENCHMARK_CAPTURE(sum, one_host, testing::Layout{2})
    ->Arg(1 << 10)
    ->Arg(1 << 16)
    ->Arg(1 << 20)
    ->Arg(1 << 24)
    ->UseRealTime();
BENCHMARK_CAPTURE(sum, two_hosts, testing::Layout{1, 1})
    ->Arg(1 << 10)
    ->Arg(1 << 16)
    ->Arg(1 << 20)
    ->Arg(1 << 24)
    ->UseRealTime();

}  // namespace
}  // namespace shoal::group
