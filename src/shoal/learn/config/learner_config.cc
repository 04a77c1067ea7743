#include "shoal/learn/config/learner_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/learn/config/option.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

void check_hidden(const std::vector<int>& widths, const char* name) {
  for (const int w : widths) check_option(w >= 1 && w <= 65'536, name, w, "widths from 1 to 65536");
}

}  // namespace

double scheduled(double initial, Schedule schedule, double remaining) noexcept {
  return schedule == Schedule::kLinear ? initial * std::clamp(remaining, 0.0, 1.0) : initial;
}

void validate(const LearnerConfig& c) {
  const auto check = check_option;
  check(c.total_steps >= 1, "total_steps", static_cast<double>(c.total_steps), "at least 1");
  check(c.log_interval >= 1, "log_interval", c.log_interval, "at least 1");
  check(c.num_steps >= 1, "num_steps", c.num_steps, "at least 1");
  check(c.gamma >= 0 && c.gamma <= 1, "gamma", c.gamma, "from 0 to 1");
  check(c.gae_lambda >= 0 && c.gae_lambda <= 1, "gae_lambda", c.gae_lambda, "from 0 to 1");
  check(c.learning_rate >= 0 && std::isfinite(c.learning_rate), "learning_rate", c.learning_rate,
        "0 or more");
  check(c.value_coef >= 0 && std::isfinite(c.value_coef), "value_coef", c.value_coef, "0 or more");
  check(std::isfinite(c.entropy_coef), "entropy_coef", c.entropy_coef, "finite");
  check(c.max_grad_norm >= 0, "max_grad_norm", c.max_grad_norm, "0 (not clipped) or more");
  check(c.adam_beta1 >= 0 && c.adam_beta1 < 1, "adam_beta1", c.adam_beta1,
        "at least 0 and below 1");
  check(c.adam_beta2 >= 0 && c.adam_beta2 < 1, "adam_beta2", c.adam_beta2,
        "at least 0 and below 1");
  constexpr double kLeast = std::numeric_limits<float>::min();  // less is subnormal or 0
  check(c.adam_eps >= kLeast && std::isfinite(c.adam_eps), "adam_eps", c.adam_eps,
        "at least 1.2e-38");
  check(c.rmsprop_alpha >= 0 && c.rmsprop_alpha < 1, "rmsprop_alpha", c.rmsprop_alpha,
        "at least 0 and below 1");
  check(c.rmsprop_eps >= kLeast && std::isfinite(c.rmsprop_eps), "rmsprop_eps", c.rmsprop_eps,
        "at least 1.2e-38");
  check(c.clip_obs > 0, "clip_obs", c.clip_obs, "above 0");
  check(c.clip_reward > 0, "clip_reward", c.clip_reward, "above 0");
  check(std::isfinite(c.log_std_init), "log_std_init", c.log_std_init, "finite");
  check(c.value_gain > 0 && std::isfinite(c.value_gain), "value_gain", c.value_gain, "above 0");
  check(c.pixel_mean >= 0 && c.pixel_mean <= 1, "pixel_mean", c.pixel_mean, "from 0 to 1");
  check_hidden(c.policy_hidden, "policy_hidden");
  check_hidden(c.value_hidden, "value_hidden");
  if (c.sign_reward && c.normalize_reward) {
    throw InvalidArgument(
        "configure training: sign_reward and normalize_reward are both true; choose one");
  }
}

}  // namespace shoal::learn
