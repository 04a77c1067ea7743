#include "shoal/env/reset_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "shoal/env/json_text.h"
#include "shoal/os/error.h"

namespace shoal::env {

ResetOptions ResetOptions::from_json(std::string_view text) {
  if (text.empty()) return {};
  const nlohmann::json given = parse_json(text);
  ResetOptions options;
  if (given.is_null()) return options;
  if (!given.is_object()) {
    throw InvalidArgument(fmt::format("reset options must be a JSON object, not {}", text));
  }
  for (const auto& [name, value] : given.items()) {
    if (!value.is_number()) {
      throw InvalidArgument(
          fmt::format("reset option \"{}\" must be a number, not {}", name, value.dump()));
    }
    options.numbers_.emplace_back(name, value.get<double>());
  }
  return options;
}

double ResetOptions::number(std::string_view name, double fallback) const noexcept {
  for (const auto& [known, value] : numbers_) {
    if (known == name) return value;
  }
  return fallback;
}

void ResetOptions::expect_only(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : numbers_) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw InvalidArgument(
        names.size() == 0 ? fmt::format("this environment takes no reset options, got \"{}\"", name)
                          : fmt::format("there is no reset option \"{}\"; there are {}", name,
                                        fmt::join(names, ", ")));
  }
}

std::pair<double, double> ResetOptions::bounds(double low, double high) const {
  const std::pair<double, double> bounds{number("low", low), number("high", high)};
  if (bounds.first > bounds.second) {
    throw InvalidArgument(
        fmt::format("reset options: the lower bound ({}) must not be above the higher bound ({})",
                    bounds.first, bounds.second));
  }
  return bounds;
}

}  // namespace shoal::env
