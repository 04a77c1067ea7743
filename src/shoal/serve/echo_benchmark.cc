// What the service itself costs: one client, batch 1, a server in another process; and many
// clients.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "shoal/os/affinity.h"
#include "shoal/serve/testing/echo_service.h"

namespace shoal::serve {
namespace {

using os::testing::Child;
using testing::Asker;

/// `numbers` int64 a row; the percentiles are of single round trips.
void round_trip(benchmark::State& state) {
  FrontDesk desk;
  Child server([&] { return testing::serve_echoes(testing::echo_options(desk.address())); });
  Asker asker(desk.address(), state.range(0));
  asker.ask(0);
  std::vector<std::uint64_t> times;
  for (auto _ : state) {
    const std::uint64_t start = os::now_ns();
    benchmark::DoNotOptimize(asker.ask(1));
    times.push_back(os::now_ns() - start);
  }
  std::ranges::sort(times);
  state.counters["p50_us"] = static_cast<double>(times[times.size() / 2]) / 1e3;
  state.counters["p99_us"] = static_cast<double>(times[times.size() * 99 / 100]) / 1e3;
}
BENCHMARK(round_trip)->ArgName("numbers")->Arg(4)->Arg(3528)->UseRealTime();  // 84x84x4 bytes

void many_clients(benchmark::State& state) {
  constexpr int kEach = 200;
  FrontDesk desk;
  Child server([&] { return testing::serve_echoes(testing::echo_options(desk.address(), 64)); });
  const auto clients = static_cast<int>(state.range(0));
  for (auto _ : state) {
    std::vector<std::unique_ptr<Child>> children;
    for (int c = 0; c < clients; ++c) {
      children.push_back(std::make_unique<Child>([&] {
        Asker asker(desk.address());
        for (int i = 0; i < kEach; ++i) asker.ask(i);
        return 0;
      }));
    }
    for (const auto& child : children) child->join();
  }
  state.SetItemsProcessed(state.iterations() * clients * kEach);
}
BENCHMARK(many_clients)->ArgName("clients")->Arg(1)->Arg(4)->Arg(64)->UseRealTime();

}  // namespace
}  // namespace shoal::serve
