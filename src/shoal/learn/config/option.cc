#include "shoal/learn/config/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using nlohmann::json;

constexpr const char* kSchedules[] = {"constant", "linear"};
constexpr const char* kActivations[] = {"tanh", "relu"};
constexpr const char* kPrecisions[] = {"float32", "bfloat16"};
constexpr const char* kNormalizations[] = {"none", "minibatch", "rollout"};
constexpr const char* kOptimizers[] = {"adam", "rmsprop", "rmsprop_tf"};
constexpr const char* kSplits[] = {"auto", "always", "never"};

[[noreturn]] void wrong_type(const char* name, const json& value, const std::string& wanted) {
  throw InvalidArgument(
      fmt::format("configure training: {} = {}; it takes {}", name, value.dump(), wanted));
}

template <class Integer>
void read_integer(const char* name, const json& value, Integer& out) {
  bool fits = false;
  if (value.is_number_unsigned()) {
    fits = std::in_range<Integer>(value.get<std::uint64_t>());
  } else if (value.is_number_integer()) {
    fits = std::in_range<Integer>(value.get<std::int64_t>());
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    fits = std::floor(number) == number &&
           std::abs(number) < std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  }
  if (!fits) wrong_type(name, value, "a whole number");
  out =
      value.is_number_integer() ? value.get<Integer>() : static_cast<Integer>(value.get<double>());
}

}  // namespace

std::span<const char* const> value_names(Schedule) { return kSchedules; }
std::span<const char* const> value_names(Activation) { return kActivations; }
std::span<const char* const> value_names(Precision) { return kPrecisions; }
std::span<const char* const> value_names(AdvantageNormalization) { return kNormalizations; }
std::span<const char* const> value_names(OptimizerKind) { return kOptimizers; }
std::span<const char* const> value_names(SplitUpdate) { return kSplits; }

void read_option(const char* name, const json& value, bool& out) {
  if (!value.is_boolean()) wrong_type(name, value, "true or false");
  out = value.get<bool>();
}

void read_option(const char* name, const json& value, int& out) { read_integer(name, value, out); }

void read_option(const char* name, const json& value, std::int64_t& out) {
  read_integer(name, value, out);
}

void read_option(const char* name, const json& value, double& out) {
  if (!value.is_number()) wrong_type(name, value, "a number");
  out = value.get<double>();
}

void read_option(const char* name, const json& value, std::optional<double>& out) {
  if (value.is_null()) {
    out.reset();
  } else {
    read_option(name, value, out.emplace());
  }
}

void read_option(const char* name, const json& value, std::vector<int>& out) {
  if (!value.is_array()) wrong_type(name, value, "a list of layer widths, such as [64, 64]");
  std::vector<int> widths(value.size());
  for (std::size_t i = 0; i < widths.size(); ++i) read_option(name, value[i], widths[i]);
  out = widths;
}

std::size_t read_choice(const char* name, const json& value, std::span<const char* const> names) {
  // Command lines and TOML turn the word none into nothing.
  const json wanted = value.is_null() ? json("none") : value;
  const auto it = std::ranges::find_if(names, [&](const char* n) { return wanted == n; });
  if (it == names.end()) {
    wrong_type(name, value, fmt::format("one of {}", fmt::join(names, ", ")));
  }
  return static_cast<std::size_t>(it - names.begin());
}

void check_option(bool good, const char* name, double value, const char* limits) {
  if (!good)
    throw InvalidArgument(
        fmt::format("configure training: {} = {}; it must be {}", name, value, limits));
}

void validate(const RankOptions& options) {
  check_option(options.sync_fraction > 0 && options.sync_fraction <= 1, "sync_fraction",
               options.sync_fraction, "above 0, and 1 (all are waited for) at most");
}

void check_names(const json& in, const std::vector<std::string>& known) {
  if (!in.is_object())
    throw InvalidArgument("configure training: the configuration is not a JSON object but " +
                          in.dump());
  for (const auto& [name, value] : in.items()) {
    if (std::ranges::find(known, name) == known.end()) {
      throw InvalidArgument(fmt::format("configure training: there is no option {}; there are {}",
                                        name, fmt::join(known, ", ")));
    }
  }
}

}  // namespace shoal::learn
