// What each file of the bindings adds to the module `shoal._learn`.
#pragma once

#include <nanobind/nanobind.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace shoal::python {

void bind_learn_a3c(nanobind::module_& module);
void bind_learn_actor(nanobind::module_& module);
void bind_learn_config(nanobind::module_& module);
void bind_learn_directory(nanobind::module_& module);
void bind_learn_numerics(nanobind::module_& module);
void bind_learn_policy(nanobind::module_& module);
void bind_learn_remote(nanobind::module_& module);
void bind_learn_trainer(nanobind::module_& module);

/// JSON as text is how configurations, descriptions and results cross: the Python side has `json`.
/// Throws InvalidArgument.
nlohmann::json parse_json(const std::string& text, const char* what);

/// A number, or None where there is none yet.
inline nanobind::object number_or_none(std::optional<double> value) {
  if (!value || std::isnan(*value)) return nanobind::none();
  return nanobind::float_(*value);
}

}  // namespace shoal::python
