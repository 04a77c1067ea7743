#include "shoal/learn/checkpoint/space_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using nlohmann::json;

json bounds_to_json(const std::vector<double>& bounds) {
  json list = json::array();
  for (double bound : bounds) {
    if (std::isinf(bound))
      list.push_back(bound > 0 ? "inf" : "-inf");
    else
      list.push_back(bound);
  }
  return list;
}

std::vector<double> bounds_from_json(const json& list) {
  std::vector<double> bounds;
  for (const auto& bound : list) {
    if (bound.is_number())
      bounds.push_back(bound.get<double>());
    else if (bound == "inf" || bound == "-inf")
      bounds.push_back(bound == "inf" ? std::numeric_limits<double>::infinity()
                                      : -std::numeric_limits<double>::infinity());
    else
      throw InvalidArgument(fmt::format("a space has the bound {}", bound.dump()));
  }
  return bounds;
}

struct ToJson {
  json operator()(const env::Box& box) const {
    return {{"type", "Box"},
            {"dtype", shm::name(box.spec.dtype)},
            {"shape", box.spec.shape},
            {"low", bounds_to_json(box.low)},
            {"high", bounds_to_json(box.high)}};
  }
  json operator()(const env::Discrete& discrete) const {
    return {{"type", "Discrete"},
            {"n", discrete.n},
            {"start", discrete.start},
            {"dtype", shm::name(discrete.dtype)}};
  }
  json operator()(const env::MultiDiscrete& multi) const {
    return {{"type", "MultiDiscrete"},
            {"nvec", multi.nvec},
            {"start", multi.start},
            {"shape", multi.shape},
            {"dtype", shm::name(multi.dtype)}};
  }
  json operator()(const env::MultiBinary& binary) const {
    return {{"type", "MultiBinary"}, {"shape", binary.shape}};
  }
  json operator()(const env::Dict& dict) const {
    json spaces = json::array();
    for (const auto& [name, space] : dict.spaces)
      spaces.push_back(json::array({name, space_to_json(space)}));
    return {{"type", "Dict"}, {"spaces", spaces}};
  }
  json operator()(const env::Tuple& tuple) const {
    json spaces = json::array();
    for (const auto& space : tuple.spaces) spaces.push_back(space_to_json(space));
    return {{"type", "Tuple"}, {"spaces", spaces}};
  }
  json operator()(const env::Opaque& space) const {
    throw InvalidArgument(
        fmt::format("save the space {}: its samples are no arrays of fixed size", space.text));
  }
};

using Shape = std::vector<std::int64_t>;

env::Space from_json(const json& value) {
  const auto type = value.at("type").get<std::string>();
  const auto dtype = [&] { return shm::dtype_from_name(value.at("dtype").get<std::string>()); };
  const auto integers = [&](const char* key) { return value.at(key).get<Shape>(); };
  if (type == "Box")
    return env::Box{{dtype(), integers("shape")},
                    bounds_from_json(value.at("low")),
                    bounds_from_json(value.at("high"))};
  if (type == "Discrete")
    return env::Discrete{value.at("n").get<std::int64_t>(), value.at("start").get<std::int64_t>(),
                         dtype()};
  if (type == "MultiDiscrete")
    return env::MultiDiscrete{integers("nvec"), integers("start"), integers("shape"), dtype()};
  if (type == "MultiBinary") return env::MultiBinary{integers("shape")};
  if (type == "Dict") {
    env::Dict dict;
    for (const auto& item : value.at("spaces"))
      dict.spaces.emplace_back(item.at(0).get<std::string>(), from_json(item.at(1)));
    return dict;
  }
  if (type == "Tuple") {
    env::Tuple tuple;
    for (const auto& item : value.at("spaces")) tuple.spaces.push_back(from_json(item));
    return tuple;
  }
  throw InvalidArgument(fmt::format("there is no space of type \"{}\"", type));
}

}  // namespace

json space_to_json(const env::Space& space) { return std::visit(ToJson{}, space.kind()); }

env::Space space_from_json(const json& value) {
  try {
    return from_json(value);
  } catch (const json::exception& error) {
    throw InvalidArgument(fmt::format("not a space: {} ({})", value.dump(), error.what()));
  }
}

}  // namespace shoal::learn
