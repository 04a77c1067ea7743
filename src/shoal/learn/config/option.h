// One option in JSON and back, with errors that name it. A configuration lists its options in a
// function for_each_option(config, visit), which calls visit(name, field) for each; from that list
// follow its JSON, its flags and the names in its errors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/config/rank_options.h"

namespace shoal::learn {

/// The names of an enumeration's values, in their order.
std::span<const char* const> value_names(Schedule);
std::span<const char* const> value_names(Activation);
std::span<const char* const> value_names(Precision);
std::span<const char* const> value_names(AdvantageNormalization);
std::span<const char* const> value_names(OptimizerKind);
std::span<const char* const> value_names(SplitUpdate);

/// Overwrites the field. Throws InvalidArgument naming the option, the value and what it takes.
void read_option(const char* name, const nlohmann::json& value, bool& out);
void read_option(const char* name, const nlohmann::json& value, int& out);
void read_option(const char* name, const nlohmann::json& value, std::int64_t& out);
void read_option(const char* name, const nlohmann::json& value, double& out);
void read_option(const char* name, const nlohmann::json& value, std::optional<double>& out);
void read_option(const char* name, const nlohmann::json& value, std::vector<int>& out);
/// Which of the names it is; null is "none", where that is one.
std::size_t read_choice(const char* name, const nlohmann::json& value,
                        std::span<const char* const> names);

template <class Enum>
  requires std::is_enum_v<Enum>
void read_option(const char* name, const nlohmann::json& value, Enum& out) {
  out = static_cast<Enum>(read_choice(name, value, value_names(out)));
}

template <class T>
nlohmann::json write_option(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return value_names(value)[static_cast<std::size_t>(value)];
  } else {
    return value;
  }
}

/// An absent number is null.
inline nlohmann::json write_option(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

/// Throws InvalidArgument naming the option, its value and its limits unless `good`.
void check_option(bool good, const char* name, double value, const char* limits);

/// The options by name.
template <class Config>
nlohmann::json options_to_json(const Config& config) {
  auto out = nlohmann::json::object();
  for_each_option(config,
                  [&](const char* name, const auto& field) { out[name] = write_option(field); });
  return out;
}

template <class Config>
std::vector<std::string> option_names(const Config& config) {
  std::vector<std::string> names;
  for_each_option(config, [&](const char* name, const auto&) { names.emplace_back(name); });
  return names;
}

/// Throws InvalidArgument unless `in` is an object all of whose names are in `known`.
void check_names(const nlohmann::json& in, const std::vector<std::string>& known);

/// Overwrites the fields that `in` names. Throws InvalidArgument for an unknown name or an
/// unsuitable value; nothing has then changed.
template <class Config>
void options_from_json(const nlohmann::json& in, Config& config) {
  check_names(in, option_names(config));
  Config changed = config;
  for_each_option(changed, [&](const char* name, auto& field) {
    if (in.contains(name)) read_option(name, in.at(name), field);
  });
  config = changed;
}

}  // namespace shoal::learn
