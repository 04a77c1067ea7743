// Steps 64 CartPoles with random actions, in threads and in worker processes: the same rewards.
//
//   ./step_cartpole [environment id] [plug-in to load first]
#include <cstdio>
#include <exception>

#include "shoal/env/np_random.h"
#include "shoal/env/plugin.h"
#include "shoal/vector/vector_env.h"

namespace {

double total_reward(const char* id, shoal::vector::Backend backend) {
  const auto envs =
      shoal::vector::VectorEnv::create(id, {.num_envs = 64, .num_workers = 2, .backend = backend});
  shoal::env::NpRandom random(1);
  envs->reset(std::uint64_t{0});
  double total = 0;
  for (int step = 0; step < 1000; ++step) {
    for (std::int64_t& action : envs->actions()[0].as<std::int64_t>())
      action = random.integers(0, 2);
    const shoal::vector::Batch batch = envs->step();
    for (const double reward : batch.reward) total += reward;
  }
  return total;
}

}  // namespace

int main(int argc, char** argv) try {
  const char* const id = argc > 1 ? argv[1] : "shoal/CartPole-v1";
  if (argc > 2) shoal::env::load_plugin(argv[2]);
  const double threads = total_reward(id, shoal::vector::Backend::kThread);
  const double processes = total_reward(id, shoal::vector::Backend::kProcess);
  std::printf("%s: %.0f in threads, %.0f in processes\n", id, threads, processes);
  return threads == processes ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
