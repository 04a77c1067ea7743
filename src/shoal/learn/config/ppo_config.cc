#include "shoal/learn/config/ppo_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using nlohmann::json;

// The names of enumerators, in the order of their values.
template <class Enum>
struct Names;
template <>
struct Names<Schedule> {
  static constexpr const char* kList[] = {"constant", "linear"};
};
template <>
struct Names<Activation> {
  static constexpr const char* kList[] = {"tanh", "relu"};
};
template <>
struct Names<AdvantageNormalization> {
  static constexpr const char* kList[] = {"none", "minibatch", "rollout"};
};

template <class T>
json write(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return Names<T>::kList[static_cast<std::size_t>(value)];
  } else {
    return value;
  }
}

json write(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

[[noreturn]] void wrong_type(const char* name, const json& value, const char* wanted) {
  throw InvalidArgument(
      fmt::format("configure PPO: {} = {}; it takes {}", name, value.dump(), wanted));
}

void read(const char* name, const json& value, bool& out) {
  if (!value.is_boolean()) wrong_type(name, value, "true or false");
  out = value.get<bool>();
}

void read(const char* name, const json& value, double& out) {
  if (!value.is_number()) wrong_type(name, value, "a number");
  out = value.get<double>();
}

void read(const char* name, const json& value, std::optional<double>& out) {
  if (value.is_null()) {
    out.reset();
  } else {
    read(name, value, out.emplace());
  }
}

template <class Integer>
  requires std::is_integral_v<Integer>
void read(const char* name, const json& value, Integer& out) {
  const bool whole =
      value.is_number_integer() ||
      (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
  if (!whole ||
      std::abs(value.get<double>()) > static_cast<double>(std::numeric_limits<Integer>::max())) {
    wrong_type(name, value, "a whole number");
  }
  out =
      value.is_number_integer() ? value.get<Integer>() : static_cast<Integer>(value.get<double>());
}

void read(const char* name, const json& value, std::vector<int>& out) {
  if (!value.is_array()) wrong_type(name, value, "a list of layer widths, such as [64, 64]");
  std::vector<int> widths(value.size());
  for (std::size_t i = 0; i < widths.size(); ++i) read(name, value[i], widths[i]);
  out = widths;
}

template <class Enum>
  requires std::is_enum_v<Enum>
void read(const char* name, const json& value, Enum& out) {
  const auto& names = Names<Enum>::kList;
  const auto it = std::ranges::find_if(names, [&](const char* n) { return value == n; });
  if (it == std::end(names))
    wrong_type(name, value, fmt::format("one of {}", fmt::join(names, ", ")).c_str());
  out = static_cast<Enum>(it - std::begin(names));
}

// The one list of fields: `visit(name, field)` for each.
template <class Config, class Visit>
void for_each_field(Config& c, Visit&& visit) {
  visit("total_steps", c.total_steps);
  visit("num_steps", c.num_steps);
  visit("gamma", c.gamma);
  visit("gae_lambda", c.gae_lambda);
  visit("bootstrap_truncated", c.bootstrap_truncated);
  visit("batch_size", c.batch_size);
  visit("epochs", c.epochs);
  visit("learning_rate", c.learning_rate);
  visit("learning_rate_schedule", c.learning_rate_schedule);
  visit("clip_range", c.clip_range);
  visit("clip_range_schedule", c.clip_range_schedule);
  visit("clip_range_value", c.clip_range_value);
  visit("pessimistic_value_clip", c.pessimistic_value_clip);
  visit("value_coef", c.value_coef);
  visit("entropy_coef", c.entropy_coef);
  visit("target_kl", c.target_kl);
  visit("max_grad_norm", c.max_grad_norm);
  visit("adam_beta1", c.adam_beta1);
  visit("adam_beta2", c.adam_beta2);
  visit("adam_eps", c.adam_eps);
  visit("advantage_normalization", c.advantage_normalization);
  visit("normalize_obs", c.normalize_obs);
  visit("clip_obs", c.clip_obs);
  visit("normalize_reward", c.normalize_reward);
  visit("clip_reward", c.clip_reward);
  visit("sign_reward", c.sign_reward);
  visit("policy_hidden", c.policy_hidden);
  visit("value_hidden", c.value_hidden);
  visit("shared_hidden", c.shared_hidden);
  visit("activation", c.activation);
  visit("orthogonal_init", c.orthogonal_init);
  visit("log_std_init", c.log_std_init);
  visit("fused", c.fused);
}

void check(bool good, const char* name, double value, const char* limits) {
  if (!good)
    throw InvalidArgument(
        fmt::format("configure PPO: {} = {}; it must be {}", name, value, limits));
}

void check_hidden(const std::vector<int>& widths, const char* name) {
  for (const int w : widths) check(w >= 1 && w <= 65'536, name, w, "widths from 1 to 65536");
}

}  // namespace

double scheduled(double initial, Schedule schedule, double remaining) noexcept {
  return schedule == Schedule::kLinear ? initial * std::clamp(remaining, 0.0, 1.0) : initial;
}

void validate(const PpoConfig& c) {
  check(c.total_steps >= 1, "total_steps", static_cast<double>(c.total_steps), "at least 1");
  check(c.num_steps >= 1, "num_steps", c.num_steps, "at least 1");
  check(c.gamma >= 0 && c.gamma <= 1, "gamma", c.gamma, "from 0 to 1");
  check(c.gae_lambda >= 0 && c.gae_lambda <= 1, "gae_lambda", c.gae_lambda, "from 0 to 1");
  check(c.batch_size >= 2, "batch_size", c.batch_size, "at least 2");
  check(c.epochs >= 1, "epochs", c.epochs, "at least 1");
  check(c.learning_rate >= 0 && std::isfinite(c.learning_rate), "learning_rate", c.learning_rate,
        "0 or more");
  check(c.clip_range > 0, "clip_range", c.clip_range, "above 0");
  check(!c.clip_range_value || *c.clip_range_value > 0, "clip_range_value",
        c.clip_range_value.value_or(0), "above 0 or null");
  check(!c.target_kl || *c.target_kl > 0, "target_kl", c.target_kl.value_or(0), "above 0 or null");
  check(c.max_grad_norm >= 0, "max_grad_norm", c.max_grad_norm, "0 (not clipped) or more");
  check(c.adam_beta1 >= 0 && c.adam_beta1 < 1, "adam_beta1", c.adam_beta1,
        "at least 0 and below 1");
  check(c.adam_beta2 >= 0 && c.adam_beta2 < 1, "adam_beta2", c.adam_beta2,
        "at least 0 and below 1");
  check(c.adam_eps > 0, "adam_eps", c.adam_eps, "above 0");
  check(c.clip_obs > 0, "clip_obs", c.clip_obs, "above 0");
  check(c.clip_reward > 0, "clip_reward", c.clip_reward, "above 0");
  check(std::isfinite(c.log_std_init), "log_std_init", c.log_std_init, "finite");
  check_hidden(c.policy_hidden, "policy_hidden");
  check_hidden(c.value_hidden, "value_hidden");
  if (c.sign_reward && c.normalize_reward) {
    throw InvalidArgument(
        "configure PPO: sign_reward and normalize_reward are both true; choose one");
  }
}

void to_json(json& out, const PpoConfig& config) {
  out = json::object();
  for_each_field(config, [&](const char* name, const auto& field) { out[name] = write(field); });
}

void from_json(const json& in, PpoConfig& config) {
  if (!in.is_object())
    throw InvalidArgument("configure PPO: the configuration is not a JSON object but " + in.dump());
  std::vector<std::string> known;
  PpoConfig changed = config;
  for_each_field(changed, [&](const char* name, auto& field) {
    known.emplace_back(name);
    if (in.contains(name)) read(name, in.at(name), field);
  });
  for (const auto& [name, value] : in.items()) {
    if (std::ranges::find(known, name) == known.end()) {
      throw InvalidArgument(fmt::format("configure PPO: there is no option {}; there are {}", name,
                                        fmt::join(known, ", ")));
    }
  }
  config = changed;
}

}  // namespace shoal::learn
