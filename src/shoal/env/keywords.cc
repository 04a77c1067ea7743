#include "shoal/env/keywords.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shoal/os/error.h"

namespace shoal::env {

Keywords::Keywords(const nlohmann::json& args) : args_(args) {
  if (!args.is_object()) {
    throw InvalidArgument(
        fmt::format("environment arguments must be a JSON object, not {}", args.dump()));
  }
}

const nlohmann::json* Keywords::find(std::string_view name) {
  known_.emplace_back(name);
  const auto found = args_.find(known_.back());
  return found == args_.end() ? nullptr : &*found;
}

bool Keywords::take_bool(std::string_view name, bool fallback) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    throw InvalidArgument(
        fmt::format("argument {} must be true or false, not {}", name, value->dump()));
  }
  return value->get<bool>();
}

double Keywords::take_double(std::string_view name, double fallback) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_number()) {
    throw InvalidArgument(fmt::format("argument {} must be a number, not {}", name, value->dump()));
  }
  return value->get<double>();
}

std::string Keywords::take_choice(std::string_view name,
                                  std::initializer_list<std::string_view> choices) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return std::string(*choices.begin());
  if (value->is_string() &&
      std::ranges::find(choices, value->get_ref<const std::string&>()) != choices.end()) {
    return value->get<std::string>();
  }
  throw InvalidArgument(fmt::format("argument {} must be one of {}, not {}", name,
                                    fmt::join(choices, ", "), value->dump()));
}

void Keywords::expect_no_more() const {
  for (const auto& [name, value] : args_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    throw InvalidArgument(known_.empty() ? fmt::format("unknown argument {}; it takes none", name)
                                         : fmt::format("unknown argument {}; known: {}", name,
                                                       fmt::join(known_, ", ")));
  }
}

}  // namespace shoal::env
