// What the service itself costs: one client, batch 1, a server in another process; and many
// clients.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "shoal/os/limits/affinity.h"
#include "shoal/serve/testing/echo_service.h"

namespace shoal::serve {
namespace {

using os::testing::Child;
using testing::Asker;

/// How often this thread has gone to sleep.
std::uint64_t sleeps() {
  rusage usage{};
  SHOAL_CHECK(::getrusage(RUSAGE_THREAD, &usage) == 0, "getrusage of this thread works");
  return static_cast<std::uint64_t>(usage.ru_nvcsw);
}

/// How often the first thread of `pid` has gone to sleep.
std::uint64_t sleeps_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    std::uint64_t count = 0;
    if (word == "voluntary_ctxt_switches:" && status >> count) return count;
  }
  return 0;
}

struct Trip {
  std::uint64_t ns = 0;
  bool slept = false;  // the client did
};

/// `numbers` int64 a row; the percentiles are of single round trips. Sleeps are told since a tail
/// of tens of microseconds is what waking somebody costs: of a thousand round trips of either side,
/// and the share of the slowest hundredth in which the client slept.
void round_trip(benchmark::State& state) {
  Frontend frontend;
  Child server([&] { return testing::serve_echoes(testing::echo_options(frontend.address())); });
  Asker asker(frontend.address(), state.range(0));
  asker.ask(0);
  std::vector<Trip> trips;
  const std::uint64_t first = sleeps();
  const std::uint64_t server_first = sleeps_of(server.pid());
  std::uint64_t slept = first;
  for (auto _ : state) {
    const std::uint64_t start = os::now_ns();
    benchmark::DoNotOptimize(asker.ask(1));
    const std::uint64_t ns = os::now_ns() - start;
    const std::uint64_t now = sleeps();
    trips.push_back({ns, now != slept});
    slept = now;
  }
  const auto per_thousand = [&](std::uint64_t count) {
    return 1e3 * static_cast<double>(count) / static_cast<double>(trips.size());
  };
  state.counters["client_sleeps"] = per_thousand(slept - first);
  state.counters["server_sleeps"] = per_thousand(sleeps_of(server.pid()) - server_first);
  std::ranges::sort(trips, {}, &Trip::ns);
  const auto slow = std::span(trips).subspan(trips.size() * 99 / 100);
  state.counters["p50_us"] = static_cast<double>(trips[trips.size() / 2].ns) / 1e3;
  state.counters["p99_us"] = static_cast<double>(slow[0].ns) / 1e3;
  state.counters["slow_slept"] = static_cast<double>(std::ranges::count(slow, true, &Trip::slept)) /
                                 static_cast<double>(slow.size());
}
BENCHMARK(round_trip)->ArgName("numbers")->Arg(4)->Arg(3528)->UseRealTime();  // 84x84x4 bytes

void many_clients(benchmark::State& state) {
  constexpr int kEach = 200;
  Frontend frontend;
  Child server(
      [&] { return testing::serve_echoes(testing::echo_options(frontend.address(), 64)); });
  const auto clients = static_cast<int>(state.range(0));
  for (auto _ : state) {
    std::vector<std::unique_ptr<Child>> children;
    for (int c = 0; c < clients; ++c) {
      children.push_back(std::make_unique<Child>([&] {
        Asker asker(frontend.address());
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
