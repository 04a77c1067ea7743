// A3C's presets. That of CartPole-v1 is A2C's, with longer rollouts and GAE: with rollouts of 5 and n-step
// returns 3 of 160 runs of two processes did not get there, with these none.
#include "shoal/learn/a3c/a3c_config.h"

namespace shoal::learn {
namespace {

constexpr Preset kPresets[] = {
    {"default", R"({"num_envs": 8, "total_steps": 1000000})"},

    {"CartPole-v1", R"({
      "num_envs": 8, "total_steps": 500000, "learning_rate_schedule": "linear",
      "num_steps": 16, "gae_lambda": 0.95, "entropy_coef": 0, "eval_every": 5000, "target_return": 490})"},
};

}  // namespace

std::span<const Preset> A3cConfig::presets() { return kPresets; }

}  // namespace shoal::learn
