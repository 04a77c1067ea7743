// What a span takes: while nobody listens, and while somebody does.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <thread>

#include "shoal/trace/capture.h"

namespace shoal::trace {
namespace {

os::Fd own_recorder() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
    if (what.find(kRecorderName) != std::string::npos)
      return os::Fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
  }
  return os::Fd();
}

void scopes(benchmark::State& state) {
  for (auto _ : state) {
    const Scope scope(Span::kUpdate);
    benchmark::DoNotOptimize(&scope);
  }
}

void Off(benchmark::State& state) {
  open();
  scopes(state);
}
BENCHMARK(Off);

class Listener {
 public:
  Listener() {
    open();
    capture_.add(own_recorder());
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        static_cast<void>(capture_.poll());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }

 private:
  Capture capture_;
  std::jthread thread_;
};

void On(benchmark::State& state) {
  const Listener listener;
  scopes(state);
}
BENCHMARK(On);

void OnWithTimesTaken(benchmark::State& state) {
  const Listener listener;
  const std::uint64_t now = os::now_ns();
  for (auto _ : state) note(Span::kUpdate, now, now);
}
BENCHMARK(OnWithTimesTaken);

}  // namespace
}  // namespace shoal::trace
