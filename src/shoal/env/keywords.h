// The keyword arguments of an environment's factory, taken one by one so that a misspelt name is an
// error.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::env {

/// Borrows a JSON object for the length of a factory call.
class Keywords {
 public:
  /// Throws InvalidArgument when `args` is not an object.
  explicit Keywords(const nlohmann::json& args);

  /// The argument `name`, or `fallback` when it is absent. Throws InvalidArgument for a value of
  /// another type.
  bool take_bool(std::string_view name, bool fallback);
  double take_double(std::string_view name, double fallback);
  /// One of `choices`; the first of them when it is absent.
  std::string take_choice(std::string_view name, std::initializer_list<std::string_view> choices);

  /// Throws InvalidArgument, listing the names taken so far, when an argument is left.
  void expect_no_more() const;

 private:
  const nlohmann::json* find(std::string_view name);

  const nlohmann::json& args_;
  std::vector<std::string> known_;
};

}  // namespace shoal::env
