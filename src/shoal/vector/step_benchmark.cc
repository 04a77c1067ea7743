// What a step costs beyond the environments: 2 workers × 64 rows whose stepper does nothing.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <vector>

#include "shoal/process/identity/welcome.h"
#include "shoal/process/launcher.h"
#include "shoal/vector/local/serial_vector_env.h"
#include "shoal/vector/local/thread_vector_env.h"
#include "shoal/vector/native/native_stepper.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/worker_program/pool_worker.h"

namespace shoal::vector {
namespace {

// Rows of 4 float32, busy for a given time in each step.
class BusyStepper final : public Stepper {
 public:
  BusyStepper(int count, std::chrono::nanoseconds work) : count_(count), work_(work) {
    hello_.observation_space = env::Box{{shm::DType::kF32, {4}}, {-1}, {1}};
    hello_.action_space = env::Discrete{.n = 2};
  }
  const Hello& hello() const override { return hello_; }
  int count() const override { return count_; }
  void attach(const Rows&, int, EnvMarker) override {}
  void reset_range(int, int) override {}
  void step_range(int, int) override {
    if (work_.count() == 0) return;
    const auto end = os::Clock::now() + work_;
    while (os::Clock::now() < end) {
    }
  }
  std::vector<std::byte> request(std::span<const std::byte>) override { return {}; }

 private:
  Hello hello_;
  int count_;
  std::chrono::nanoseconds work_;
};

constexpr int kNumEnvs = 64;

void run(benchmark::State& state, VectorEnv& envs) {
  envs.reset(std::uint64_t{0});
  for (auto _ : state) benchmark::DoNotOptimize(envs.step());
  state.SetItemsProcessed(state.iterations() * kNumEnvs);
  const Stats stats = envs.stats();
  state.counters["caller_parks"] =
      static_cast<double>(stats.parks) / static_cast<double>(stats.steps);
  for (const WorkerStats& worker : stats.workers) {
    state.counters["worker_parks"] +=
        static_cast<double>(worker.parks) / static_cast<double>(stats.steps);
  }
}

void process_step(benchmark::State& state) {
  const int num_workers = static_cast<int>(state.range(0));
  const std::chrono::microseconds work(state.range(1));
  auto hooks = std::make_shared<process::ForkHooks>();
  hooks->entries.add("busy", [work](process::WorkerContext& context) {
    const auto identity = process::receive_welcome(context);
    if (!identity) return 0;
    const auto open = [work](std::span<const std::byte>, int, int count) {
      return PoolWorkerHooks::Opened{std::make_unique<BusyStepper>(count, work), {}, {}};
    };
    run_pool_worker(context.channel, *identity,
                    {.open = open, .describe_opening = {}, .before_park = {}, .after_park = {}});
    return 0;
  });
  process::LaunchOptions options;
  options.method = process::StartMethod::kFork;
  options.fork_hooks = hooks;
  std::vector<process::WorkerSpec> specs(static_cast<std::size_t>(num_workers));
  for (process::WorkerSpec& spec : specs) {
    spec.entry = "busy";
    spec.num_envs = kNumEnvs / num_workers;
  }
  ProcessVectorEnv envs(process::Launcher::create(options), std::move(specs), {});
  run(state, envs);
}

void thread_step(benchmark::State& state) {
  const int num_workers = static_cast<int>(state.range(0));
  std::vector<std::unique_ptr<Stepper>> steppers;
  for (int w = 0; w < num_workers; ++w) {
    steppers.push_back(std::make_unique<BusyStepper>(kNumEnvs / num_workers,
                                                     std::chrono::microseconds(state.range(1))));
  }
  ThreadVectorEnv envs(std::move(steppers), AutoresetMode::kNextStep);
  run(state, envs);
}

void native_step(benchmark::State& state, Backend backend) {
  Options options;
  options.num_envs = static_cast<int>(state.range(0));
  options.backend = backend;
  auto envs = VectorEnv::create("shoal/CartPole-v1", options);
  envs->reset(std::uint64_t{0});
  for (auto _ : state) benchmark::DoNotOptimize(envs->step());
  state.SetItemsProcessed(state.iterations() * options.num_envs);
}

/// The engine that steps one by one, asked for whole batches: 0, the engine that steps all together;
/// 1, step() of the other; 2, its send() and recv().
void whole_batch(benchmark::State& state) {
  Options options;
  options.num_envs = static_cast<int>(state.range(0));
  options.num_workers = 2;
  options.backend = Backend::kProcess;
  if (state.range(1) > 0) options.batch_size = options.num_envs;
  auto envs = VectorEnv::create("shoal/CartPole-v1", options);
  envs->reset(std::uint64_t{0});
  if (state.range(1) < 2) {
    for (auto _ : state) benchmark::DoNotOptimize(envs->step());
  } else {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(options.num_envs));
    std::iota(ids.begin(), ids.end(), 0);
    for (auto _ : state) {
      envs->send(ids);
      benchmark::DoNotOptimize(envs->recv());
    }
  }
  state.SetItemsProcessed(state.iterations() * options.num_envs);
}

BENCHMARK(whole_batch)
    ->ArgNames({"envs", "engine"})
    ->ArgsProduct({{8, 64, 1024}, {0, 1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(process_step)
    ->ArgNames({"workers", "work_us"})
    ->Args({1, 0})
    ->Args({2, 0})
    ->Args({2, 20})
    ->Args({2, 150})
    ->Args({2, 1000})
    ->Args({4, 150})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(thread_step)
    ->ArgNames({"workers", "work_us"})
    ->Args({1, 0})
    ->Args({2, 0})
    ->Args({2, 20})
    ->Args({2, 150})
    ->Args({2, 1000})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(native_step, serial, Backend::kSerial)
    ->Arg(64)
    ->Arg(1024)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(native_step, thread, Backend::kThread)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(16384)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shoal::vector
