// Pieces of a learner's state as named arrays and counters, and back; for the source files of this layer.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/collect/episode_stats.h"
#include "shoal/collect/running_moments.h"
#include "shoal/learn/checkpoint/json_number.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/os/error.h"

namespace shoal::learn {

/// One of a state's counters. Throws InvalidArgument where it has none of this name.
inline const nlohmann::json& counter(const LearnerState& state, const char* name) {
  if (!state.counters.contains(name))
    throw InvalidArgument(fmt::format("load a learner's state: there is no counter {}", name));
  return state.counters.at(name);
}

/// Finished episodes: [environment, return, length] each.
template <class Episodes>
nlohmann::json episodes_to_json(const Episodes& episodes) {
  auto list = nlohmann::json::array();
  for (const collect::Episode& e : episodes)
    list.push_back({e.env, json_of(e.episode_return), e.length});
  return list;
}

inline std::vector<collect::Episode> episodes_from_json(const nlohmann::json& list) {
  std::vector<collect::Episode> episodes;
  for (const auto& e : list)
    episodes.push_back({e.at(0).get<int>(), number_of(e.at(1)), e.at(2).get<std::int64_t>()});
  return episodes;
}

template <class T>
NamedArray named_array(std::string name, std::vector<std::int64_t> shape,
                       std::span<const T> values) {
  NamedArray out{std::move(name), {shm::dtype_of<T>(), std::move(shape)}, {}};
  out.bytes.resize(values.size_bytes());
  if (!values.empty()) std::memcpy(out.bytes.data(), values.data(), values.size_bytes());
  return out;
}

template <class T>
NamedArray named_array(std::string name, std::span<const T> values) {
  return named_array(std::move(name), {static_cast<std::int64_t>(values.size())}, values);
}

/// The values of `name`, which must have this type and shape. Throws InvalidArgument.
template <class T>
std::span<const T> find_array(const std::vector<NamedArray>& arrays, const std::string& name,
                              const std::vector<std::int64_t>& shape) {
  const auto it = std::ranges::find(arrays, name, &NamedArray::name);
  if (it == arrays.end())
    throw InvalidArgument(fmt::format("load a learner's state: there is no array {}", name));
  const shm::TensorSpec wanted{shm::dtype_of<T>(), shape};
  if (it->spec != wanted || it->bytes.size() != wanted.bytes()) {
    throw InvalidArgument(
        fmt::format("load a learner's state: {} is {} [{}] where this learner's is {} [{}]; it was "
                    "trained with "
                    "another network or other spaces",
                    name, shm::name(it->spec.dtype), fmt::join(it->spec.shape, ", "),
                    shm::name(wanted.dtype), fmt::join(shape, ", ")));
  }
  return {reinterpret_cast<const T*>(it->bytes.data()), static_cast<std::size_t>(wanted.numel())};
}

template <class T>
std::span<const T> find_array(const std::vector<NamedArray>& arrays, const std::string& name,
                              std::size_t size) {
  return find_array<T>(arrays, name, std::vector<std::int64_t>{static_cast<std::int64_t>(size)});
}

inline void save_moments(const std::string& name, const collect::RunningMoments& moments,
                         std::vector<NamedArray>& out) {
  const double count = moments.count();
  out.push_back(named_array(name + ".mean", moments.mean()));
  out.push_back(named_array(name + ".var", moments.var()));
  out.push_back(named_array(name + ".count", std::span<const double>(&count, 1)));
}

inline void load_moments(const std::string& name, const std::vector<NamedArray>& in,
                         collect::RunningMoments& moments) {
  const auto mean = find_array<double>(in, name + ".mean", moments.size());
  const auto var = find_array<double>(in, name + ".var", moments.size());
  moments.restore(mean, var, find_array<double>(in, name + ".count", 1)[0]);
}

/// What an update scales returns by, where it does.
inline void save_returns(const collect::RunningMoments& returns, LearnerState& state) {
  if (returns.size() > 0) save_moments("value_target", returns, state.normalizer);
}

/// The inverse, of moments as those of `like`.
inline collect::RunningMoments read_returns(const LearnerState& state,
                                            collect::RunningMoments like) {
  if (like.size() > 0) load_moments("value_target", state.normalizer, like);
  return like;
}

inline void load_flat(const std::vector<NamedArray>& arrays, const std::string& prefix,
                      const Parameters& layout, std::span<float> flat) {
  for (const auto& p : layout.list()) {
    const auto values = find_array<float>(arrays, prefix + p.name, p.shape);
    std::ranges::copy(values, flat.subspan(p.offset).begin());
  }
}

inline void save_flat(const std::string& prefix, const Parameters& layout,
                      std::span<const float> flat, std::vector<NamedArray>& out) {
  for (const auto& p : layout.list())
    out.push_back(named_array(prefix + p.name, p.shape, flat.subspan(p.offset, p.numel())));
}

/// What an ActingPolicy keeps: its parameters, and the moments of its observations where it has some.
inline void save_policy(const Parameters& parameters, const collect::RunningMoments& moments,
                        LearnerState& state) {
  save_flat("", parameters, parameters.flat(), state.policy);
  if (moments.size() > 0) save_moments("obs", moments, state.normalizer);
}

/// The inverse. Changes nothing where it throws.
inline void load_policy(const LearnerState& state, Parameters& parameters,
                        collect::RunningMoments& moments) {
  AlignedFloats values(parameters.flat().size());
  load_flat(state.policy, "", parameters, values.span());
  collect::RunningMoments loaded = moments;
  if (loaded.size() > 0) load_moments("obs", state.normalizer, loaded);
  std::ranges::copy(values.span(), parameters.flat().begin());
  moments = std::move(loaded);
}

}  // namespace shoal::learn
