#include "shoal/learn/algorithm/train_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "shoal/learn/config/nearest_name.h"
#include "shoal/learn/config/option.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using nlohmann::json;

constexpr const char* kAlgorithm = "algorithm";

/// Calls visit(name, field) for every field that is not the algorithm's.
template <class Config, class Visit>
void for_each_field(Config& config, Visit&& visit) {
  visit("seed", config.seed);
  visit("num_envs", config.num_envs);
  visit("eval_every", config.eval_every);
  visit("eval_episodes", config.eval_episodes);
  visit("eval_envs", config.eval_envs);
  visit("final_episodes", config.final_episodes);
  visit("target_return", config.target_return);
  visit("save_every_seconds", config.save_every_seconds);
  visit("replay_limit", config.replay_limit);
  visit("pause_at_step", config.pause_at_step);
}

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

[[noreturn]] void wrong_type(const char* name, const json& value, const char* wanted) {
  throw InvalidArgument(fmt::format("{} is {}, it has to be {}", name, value.dump(), wanted));
}

/// A whole number that T holds; 1e5 is one.
template <class T>
void read_field(const char* name, const json& value, T& field) {
  if constexpr (IsOptional<T>::value) {
    if (value.is_null()) {
      field.reset();
      return;
    }
    typename T::value_type inner{};
    read_field(name, value, inner);
    field = inner;
  } else if constexpr (std::is_integral_v<T>) {
    if (value.is_number_float()) {
      const double number = value.get<double>();
      if (number != std::floor(number) || std::abs(number) > 9e15)
        wrong_type(name, value, "a whole number");
      return read_field(name, json(static_cast<std::int64_t>(number)), field);
    }
    if (!value.is_number_integer()) wrong_type(name, value, "a whole number");
    if (value.is_number_unsigned() ? !std::in_range<T>(value.get<std::uint64_t>())
                                   : !std::in_range<T>(value.get<std::int64_t>()))
      wrong_type(name, value,
                 fmt::format("between {} and {}", std::numeric_limits<T>::min(),
                             std::numeric_limits<T>::max())
                     .c_str());
    field = value.get<T>();
  } else {
    if (!value.is_number()) wrong_type(name, value, "a number");
    field = value.get<T>();
  }
}

/// An option that older versions had, and what to do without it.
struct RetiredOption {
  const char* name;
  const char* instead;
};
constexpr RetiredOption kRetired[] = {
    {"fused", "own kernels compute every network; leave it out"},
};

/// Throws for a name that runs of this algorithm do not take.
void check_names_of(std::string_view algorithm, const json& overrides) {
  const auto names = config_names(algorithm);
  for (const auto& [name, value] : overrides.items()) {
    if (std::ranges::binary_search(names, name)) continue;
    for (const auto& retired : kRetired)
      if (name == retired.name)
        throw InvalidArgument(
            fmt::format("there is no option \"{}\" any more: {}", name, retired.instead));
    for (const auto& other : algorithm_names())
      if (std::ranges::binary_search(config_names(other), name))
        throw InvalidArgument(
            fmt::format("{} has no option \"{}\", which is one of {}", algorithm, name, other));
    throw InvalidArgument(fmt::format(
        "there is no option \"{}\"; {}", name,
        nearest_or(name, names,
                   fmt::format("shoal.learn.config_names(\"{}\") lists them", algorithm))));
  }
}

void at_least(const char* name, double value, double least) {
  if (!(value >= least))
    throw InvalidArgument(fmt::format("{} is {}, it has to be at least {}", name, value, least));
}

}  // namespace

void validate(const TrainConfig& config) {
  std::visit([](const auto& its) { validate(its); }, config.algorithm);
  if (config.seed >= std::uint64_t{1} << 63)
    throw InvalidArgument(fmt::format("seed is {}, it has to be below 2^63", config.seed));
  at_least("num_envs", config.num_envs, 1);
  at_least("eval_every", static_cast<double>(config.eval_every), 0);
  at_least("eval_episodes", config.eval_episodes, 1);
  at_least("eval_envs", config.eval_envs, 1);
  at_least("final_episodes", config.final_episodes, 0);
  at_least("save_every_seconds", config.save_every_seconds, 0);
  at_least("replay_limit", static_cast<double>(config.replay_limit), 0);
  if (config.pause_at_step)
    at_least("pause_at_step", static_cast<double>(*config.pause_at_step), 1);
  if (config.target_return && !std::isfinite(*config.target_return))
    throw InvalidArgument("target_return has to be a finite number");
}

json to_flat_json(const TrainConfig& config) {
  json flat = std::visit([](const auto& its) { return options_to_json(its); }, config.algorithm);
  flat[kAlgorithm] = algorithm_of(config.algorithm);
  for_each_field(config, [&](const char* name, const auto& field) {
    if constexpr (IsOptional<std::remove_cvref_t<decltype(field)>>::value)
      flat[name] = field ? json(*field) : json(nullptr);
    else
      flat[name] = field;
  });
  return flat;
}

std::vector<std::string> config_names(std::string_view algorithm) {
  std::vector<std::string> names;
  TrainConfig config;
  config.algorithm = make_algorithm_config(algorithm);
  const json flat = to_flat_json(config);
  for (const auto& [name, value] : flat.items()) names.push_back(name);
  return names;
}

void apply_overrides(const json& overrides, TrainConfig& config) {
  if (!overrides.is_object())
    throw InvalidArgument(
        fmt::format("a configuration is a JSON object, not {}", overrides.dump()));
  json rest = overrides;
  AlgorithmConfig algorithm = config.algorithm;
  if (const auto named = rest.find(kAlgorithm); named != rest.end()) {
    if (!named->is_string()) wrong_type(kAlgorithm, *named, "the name of one, such as \"ppo\"");
    if (*named != algorithm_of(algorithm))
      algorithm = make_algorithm_config(named->get<std::string>());
    rest.erase(named);
  }
  check_names_of(algorithm_of(algorithm), overrides);
  TrainConfig changed = config;
  for_each_field(changed, [&](const char* name, auto& field) {
    const auto found = rest.find(name);
    if (found == rest.end()) return;
    read_field(name, *found, field);
    rest.erase(found);
  });
  std::visit([&](auto& its) { options_from_json(rest, its); }, algorithm);
  changed.algorithm = std::move(algorithm);
  config = std::move(changed);
}

void apply_saved(json saved, TrainConfig& config) {
  if (saved.is_object()) {
    for (const auto& retired : kRetired) saved.erase(retired.name);
  }
  apply_overrides(saved, config);
}

}  // namespace shoal::learn
