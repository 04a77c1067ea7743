// Registers by register_env(), as factories of one's own do. With -DSPOILT one of the ids is none.
#include "shoal/env/register_env.h"

namespace {

using namespace shoal::env;

struct Payer {
  using Action = std::int64_t;
  static constexpr int kActions = 3;
  static constexpr int kObservations = 1;
  static Space observation_space() { return float_box({0}, {1}); }
  static Space action_space() { return Discrete{kActions}; }
  void reset(NpRandom&, std::span<float, 1> obs) { obs[0] = 0; }
  Outcome step(Action action, std::span<float, 1>) {
    return {.reward = static_cast<double>(action)};
  }
  std::vector<double> state() const { return {}; }
  void set_state(std::span<const double>) {}
};

std::unique_ptr<BatchEnv> make(int count, int max_episode_steps, const nlohmann::json&) {
  return std::make_unique<BatchOf<Payer>>(count, max_episode_steps, Payer{});
}

const bool registered = [] {
  register_env({.id = "direct/Payer-v0"}, make);
#ifdef SPOILT
  register_env({.id = "no id"}, make);
#endif
  return true;
}();

SHOAL_REGISTER_ENV("direct/Plain-v0", Payer, .max_episode_steps = 4);

}  // namespace
