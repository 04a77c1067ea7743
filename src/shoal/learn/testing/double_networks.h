// For tests: networks of linear layers in double precision, by the names of their parameters, and
// derivatives by central differences.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/learner_config.h"

namespace shoal::learn {

/// Parameters by name.
using Values = std::map<std::string, std::vector<double>>;

/// Those arrays of float32 among `arrays` whose names begin so.
inline Values values_of(const std::vector<NamedArray>& arrays, const std::string& prefix = "") {
  Values values;
  for (const NamedArray& array : arrays) {
    if (!array.name.starts_with(prefix) || array.spec.dtype != shm::DType::kF32) continue;
    std::vector<float> floats(array.bytes.size() / sizeof(float));
    std::memcpy(floats.data(), array.bytes.data(), array.bytes.size());
    values[array.name].assign(floats.begin(), floats.end());
  }
  return values;
}

/// Sequential(Linear, Activation, …) of the parameters name.0, name.2, …; the last layer is linear unless
/// `all_activated`.
inline std::vector<double> forward(const Values& values, const std::string& name,
                                   std::vector<double> x, Activation activation,
                                   bool all_activated = false) {
  for (int index = 0;; index += 2) {
    const auto layer = name + "." + std::to_string(index);
    const auto weight = values.find(layer + ".weight");
    if (weight == values.end()) return x;
    std::vector<double> y = values.at(layer + ".bias");
    for (std::size_t o = 0; o < y.size(); ++o)
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight->second[o * x.size() + i] * x[i];
    if (all_activated || values.contains(name + "." + std::to_string(index + 2) + ".weight"))
      for (double& z : y) z = activation == Activation::kTanh ? std::tanh(z) : std::max(z, 0.0);
    x = std::move(y);
  }
}

/// The derivatives of loss(values) by the values whose names begin so.
template <class Loss>
Values differences(Values values, const std::string& prefix, Loss&& loss) {
  constexpr double kStep = 1e-6;
  Values by;
  for (auto& [name, numbers] : values) {
    if (!name.starts_with(prefix)) continue;
    auto& out = by[name];
    for (double& number : numbers) {
      const double kept = number;
      number = kept + kStep;
      const double above = loss(values);
      number = kept - kStep;
      const double below = loss(values);
      number = kept;
      out.push_back((above - below) / (2 * kStep));
    }
  }
  return by;
}

/// The greatest difference of two sets of numbers, which have the same names, by the greatest of either.
inline double greatest_difference(const Values& a, const Values& b) {
  double difference = a.size() == b.size() ? 0 : 1e300;
  double greatest = 1e-300;
  for (const auto& [name, numbers] : a) {
    const auto found = b.find(name);
    if (found == b.end() || found->second.size() != numbers.size()) return 1e300;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      difference = std::max(difference, std::abs(numbers[i] - found->second[i]));
      greatest = std::max({greatest, std::abs(numbers[i]), std::abs(found->second[i])});
    }
  }
  return difference / greatest;
}

/// a - b, name by name.
inline Values minus(Values a, const Values& b) {
  for (auto& [name, numbers] : a)
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] -= b.at(name)[i];
  return a;
}

}  // namespace shoal::learn
