// shoal._learn: C++ networks that choose actions for a collector.
#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "learn/learn_bindings.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/learn/run/network_actor.h"
#include "shoal/os/error.h"
#include "shoal/vector/vector_env.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using learn::NamedArray;
using learn::NetworkActor;
using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

NamedArray named(const std::string& name, const Array& array) {
  NamedArray named{name, {}, {}};
  if (array.dtype() == nb::dtype<float>()) {
    named.spec.dtype = shm::DType::kF32;
  } else if (array.dtype() == nb::dtype<double>()) {
    named.spec.dtype = shm::DType::kF64;
  } else {
    throw InvalidArgument(fmt::format("weights are float32 or float64; '{}' is neither", name));
  }
  for (std::size_t d = 0; d < array.ndim(); ++d)
    named.spec.shape.push_back(static_cast<std::int64_t>(array.shape(d)));
  const auto* data = static_cast<const std::byte*>(array.data());
  named.bytes.assign(data, data + named.spec.bytes());
  return named;
}

/// A one-dimensional NumPy array of its own.
nb::object copied(std::span<const std::byte> bytes, const char* type) {
  const nb::object view = nb::module_::import_("numpy").attr("frombuffer")(
      nb::bytes(bytes.data(), bytes.size()), "dtype"_a = type);
  return view.attr("copy")();
}

nb::dict weights(const NetworkActor& actor) {
  nb::dict result;
  for (const NamedArray& array : actor.weights()) {
    const char* type = array.spec.dtype == shm::DType::kF64 ? "float64" : "float32";
    result[array.name.c_str()] = copied(array.bytes, type).attr("reshape")(array.spec.shape);
  }
  return result;
}

nb::object memory(const NetworkActor& actor) {
  return copied(std::as_bytes(actor.memory()), "float32");
}

void load_memory(
    NetworkActor& actor,
    const nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>& values) {
  actor.load_memory({values.data(), values.size()});
}

void load_weights(NetworkActor& actor, const std::map<std::string, Array>& arrays) {
  std::vector<NamedArray> all;
  for (const auto& [name, array] : arrays) all.push_back(named(name, array));
  actor.load_weights(std::move(all));
}

}  // namespace

void bind_learn_actor(nb::module_& module) {
  nb::class_<NetworkActor, collect::Actor>(module, "NetworkActor")
      .def_static(
          "create",
          [](vector::VectorEnv& envs, const std::string& config_json, std::uint64_t seed) {
            learn::TrainConfig config;
            apply_overrides(parse_json(config_json, "the configuration"), config);
            return std::make_unique<NetworkActor>(envs.single_observation_space(),
                                                  envs.single_action_space(), config.algorithm,
                                                  seed);
          },
          "envs"_a, "config_json"_a, "seed"_a)
      .def_static(
          "load",
          [](vector::VectorEnv& envs, const std::string& checkpoint, std::uint64_t seed) {
            return std::make_unique<NetworkActor>(NetworkActor::load(
                checkpoint, envs.single_observation_space(), envs.single_action_space(), seed));
          },
          "envs"_a, "checkpoint"_a, "seed"_a)
      .def("reseed", &NetworkActor::reseed, "seed"_a)
      .def_prop_ro("memory_size", &NetworkActor::memory_size)
      .def("memory", &memory, nb::sig("def memory(self) -> numpy.ndarray"))
      .def("load_memory", &load_memory, "values"_a,
           nb::sig("def load_memory(self, values: numpy.ndarray) -> None"))
      .def("weights", &weights)
      .def("load_weights", &load_weights, "weights"_a,
           nb::sig("def load_weights(self, weights: dict[str, numpy.ndarray]) -> None"));
}

}  // namespace shoal::python
