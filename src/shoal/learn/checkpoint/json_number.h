// Numbers in JSON, which has none that are not finite: these are their names.
#pragma once

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace shoal::learn {

/// A number, or "nan", "inf" or "-inf".
inline nlohmann::json json_of(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

/// The inverse; null is NaN, as older versions wrote. Throws json::exception for anything else.
inline double number_of(const nlohmann::json& value) {
  if (value.is_null() || value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return value.get<double>();
}

/// The same of a number that may be none, which is null.
inline nlohmann::json json_of(const std::optional<double>& value) {
  return value ? json_of(*value) : nlohmann::json();
}

inline std::optional<double> number_or_nothing(const nlohmann::json& value) {
  return value.is_null() ? std::nullopt : std::optional(number_of(value));
}

}  // namespace shoal::learn
