// What a reset may be told beyond its seed: Gymnasium's `options`, as named numbers.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::env {

/// A value; empty for most resets.
class ResetOptions {
 public:
  ResetOptions() = default;
  /// Of a JSON object of numbers; none of "" and null. Throws InvalidArgument naming the option for
  /// anything else.
  static ResetOptions from_json(std::string_view text);

  bool empty() const noexcept { return numbers_.empty(); }
  double number(std::string_view name, double fallback) const noexcept;

  /// Throws InvalidArgument for an option that is none of `names`.
  void expect_only(std::initializer_list<std::string_view> names) const;

  /// Options "low" and "high", as Gymnasium's classic control takes them. Throws InvalidArgument
  /// when low is above high.
  std::pair<double, double> bounds(double low, double high) const;

 private:
  std::vector<std::pair<std::string, double>> numbers_;
};

}  // namespace shoal::env
