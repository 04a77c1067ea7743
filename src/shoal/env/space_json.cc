#include "shoal/env/space_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <variant>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

using nlohmann::json;

json bounds_to_json(const std::vector<double>& bounds) {
  json list = json::array();
  for (double bound : bounds) {
    if (std::isfinite(bound))
      list.push_back(bound);
    else
      list.push_back(std::isnan(bound) ? "nan" : bound > 0 ? "inf" : "-inf");
  }
  return list;
}

std::vector<double> bounds_from_json(const json& list) {
  using Limits = std::numeric_limits<double>;
  std::vector<double> bounds;
  for (const auto& bound : list) {
    if (bound.is_number())
      bounds.push_back(bound.get<double>());
    else if (bound == "inf" || bound == "-inf")
      bounds.push_back(bound == "inf" ? Limits::infinity() : -Limits::infinity());
    else if (bound == "nan")
      bounds.push_back(Limits::quiet_NaN());
    else
      throw InvalidArgument(fmt::format("a space has the bound {}", bound.dump()));
  }
  return bounds;
}

struct ToJson {
  json operator()(const Box& box) const {
    return {{"type", "Box"},
            {"dtype", shm::name(box.spec.dtype)},
            {"shape", box.spec.shape},
            {"low", bounds_to_json(box.low)},
            {"high", bounds_to_json(box.high)}};
  }
  json operator()(const Discrete& discrete) const {
    return {{"type", "Discrete"},
            {"n", discrete.n},
            {"start", discrete.start},
            {"dtype", shm::name(discrete.dtype)}};
  }
  json operator()(const MultiDiscrete& multi) const {
    return {{"type", "MultiDiscrete"},
            {"nvec", multi.nvec},
            {"start", multi.start},
            {"shape", multi.shape},
            {"dtype", shm::name(multi.dtype)}};
  }
  json operator()(const MultiBinary& binary) const {
    return {{"type", "MultiBinary"}, {"shape", binary.shape}};
  }
  json operator()(const Dict& dict) const {
    json spaces = json::array();
    for (const auto& [name, space] : dict.spaces)
      spaces.push_back(json::array({name, space_to_json(space)}));
    return {{"type", "Dict"}, {"spaces", spaces}};
  }
  json operator()(const Tuple& tuple) const {
    json spaces = json::array();
    for (const auto& space : tuple.spaces) spaces.push_back(space_to_json(space));
    return {{"type", "Tuple"}, {"spaces", spaces}};
  }
  json operator()(const Opaque& space) const {
    return {{"type", "Opaque"}, {"of", space.type}, {"text", space.text}};
  }
};

Space from_json(const json& value, int depth) {
  constexpr int kMaxDepth = 64;
  if (depth > kMaxDepth) {
    throw InvalidArgument(fmt::format("a space is nested more than {} deep", kMaxDepth));
  }
  const auto type = value.at("type").get<std::string>();
  const auto dtype = [&] { return shm::dtype_from_name(value.at("dtype").get<std::string>()); };
  const auto integers = [&](const char* key) {
    return value.at(key).get<std::vector<std::int64_t>>();
  };
  if (type == "Box")
    return Box{{dtype(), integers("shape")},
               bounds_from_json(value.at("low")),
               bounds_from_json(value.at("high"))};
  if (type == "Discrete")
    return Discrete{value.at("n").get<std::int64_t>(), value.at("start").get<std::int64_t>(),
                    dtype()};
  if (type == "MultiDiscrete")
    return MultiDiscrete{integers("nvec"), integers("start"), integers("shape"), dtype()};
  if (type == "MultiBinary") return MultiBinary{integers("shape")};
  if (type == "Dict") {
    Dict dict;
    for (const auto& item : value.at("spaces"))
      dict.spaces.emplace_back(item.at(0).get<std::string>(), from_json(item.at(1), depth + 1));
    return dict;
  }
  if (type == "Tuple") {
    Tuple tuple;
    for (const auto& item : value.at("spaces")) tuple.spaces.push_back(from_json(item, depth + 1));
    return tuple;
  }
  if (type == "Opaque")
    return Opaque{value.at("of").get<std::string>(), value.at("text").get<std::string>()};
  throw InvalidArgument(fmt::format("there is no space of type \"{}\"", type));
}

}  // namespace

json space_to_json(const Space& space) { return std::visit(ToJson{}, space.kind()); }

Space space_from_json(const json& value) {
  try {
    Space space = from_json(value, 0);
    check(space);
    return space;
  } catch (const json::exception& error) {
    throw InvalidArgument(fmt::format("not a space: {} ({})", value.dump(), error.what()));
  }
}

}  // namespace shoal::env
