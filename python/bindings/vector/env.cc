// shoal._core.env: native environments by id, stepped in this process, and NumPy's random stream.
#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "shoal/env/json_text.h"
#include "shoal/env/np_random.h"
#include "shoal/env/plugin.h"
#include "shoal/env/registry.h"
#include "shoal/env/space_json.h"
#include "shoal/os/error.h"
#include "vector/spaces.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

/// A BatchEnv and the arrays that it reads and writes.
class OwnedBatch {
 public:
  OwnedBatch(std::string_view id, int count, std::string_view args)
      : batch_(env::make_batch(id, count, args)),
        obs_(arrays(batch_->observation_space(), count)),
        actions_(arrays(batch_->action_space(), count)),
        reward_(static_cast<std::size_t>(count)),
        terminated_(static_cast<std::size_t>(count)),
        truncated_(static_cast<std::size_t>(count)) {
    batch_->attach({views(obs_, count), views(actions_, count), reward_, terminated_, truncated_});
  }

  env::BatchEnv& batch() noexcept { return *batch_; }
  int count() const noexcept { return batch_->count(); }

  /// Throws InvalidArgument unless environment `i` exists.
  int checked(int i) const {
    if (i >= 0 && i < count()) return i;
    throw InvalidArgument(fmt::format("there is no environment {} in a batch of {}", i, count()));
  }

  void step(int lo, std::optional<int> end) {
    const int hi = end.value_or(count());
    if (lo < 0 || lo > hi || hi > count()) {
      throw InvalidArgument(
          fmt::format("[{}, {}) is not a range of a batch of {}", lo, hi, count()));
    }
    const nb::gil_scoped_release unlocked;
    batch_->step_range(lo, hi);
  }

  nb::list obs(nb::handle self) { return numpy(obs_, self); }
  nb::list actions(nb::handle self) { return numpy(actions_, self); }
  nb::object reward(nb::handle self) { return vector(reward_, self); }
  nb::object terminated(nb::handle self) { return vector(terminated_, self); }
  nb::object truncated(nb::handle self) { return vector(truncated_, self); }

 private:
  struct Array {
    shm::TensorSpec row;
    std::vector<std::byte> memory;  // aligned as operator new aligns: for every element type
  };

  static std::vector<Array> arrays(const env::Space& space, int count) {
    std::vector<Array> all;
    for (const env::Leaf& leaf : env::leaves(space)) {
      all.push_back(
          {leaf.spec, std::vector<std::byte>(leaf.spec.bytes() * static_cast<std::size_t>(count))});
    }
    return all;
  }

  static std::vector<shm::TensorView> views(std::vector<Array>& arrays, int count) {
    std::vector<shm::TensorView> all;
    for (Array& array : arrays) all.push_back({array.memory.data(), count, array.row});
    return all;
  }

  static nb::dlpack::dtype dlpack_type(shm::DType dtype) {
    const auto bits = static_cast<std::uint8_t>(8 * shm::itemsize(dtype));
    const std::string_view name = shm::name(dtype);
    const auto code = name == "bool"             ? nb::dlpack::dtype_code::Bool
                      : name.starts_with("uint") ? nb::dlpack::dtype_code::UInt
                      : name.starts_with("int")  ? nb::dlpack::dtype_code::Int
                                                 : nb::dlpack::dtype_code::Float;
    return {static_cast<std::uint8_t>(code), bits, 1};
  }

  nb::list numpy(std::vector<Array>& arrays, nb::handle self) {
    nb::list all;
    for (Array& array : arrays) {
      std::vector<std::size_t> shape{static_cast<std::size_t>(count())};
      for (const std::int64_t size : array.row.shape)
        shape.push_back(static_cast<std::size_t>(size));
      all.append(nb::cast(nb::ndarray<nb::numpy>(array.memory.data(), shape.size(), shape.data(),
                                                 self, nullptr, dlpack_type(array.row.dtype))));
    }
    return all;
  }

  template <class T>
  static nb::object vector(std::vector<T>& values, nb::handle self) {
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()}, self));
  }

  std::unique_ptr<env::BatchEnv> batch_;
  std::vector<Array> obs_;
  std::vector<Array> actions_;
  std::vector<double> reward_;
  std::vector<std::uint8_t> terminated_;
  std::vector<std::uint8_t> truncated_;
};

void bind_registry(nb::module_& module) {
  nb::class_<env::EnvSpec>(module, "EnvSpec", "What is known of an id before anything is built.")
      .def_ro("id", &env::EnvSpec::id)
      .def_ro("max_episode_steps", &env::EnvSpec::max_episode_steps, "0: no limit.")
      .def_ro("reward_threshold", &env::EnvSpec::reward_threshold)
      .def("__repr__", [](const env::EnvSpec& spec) {
        return fmt::format("EnvSpec(id='{}', max_episode_steps={})", spec.id,
                           spec.max_episode_steps);
      });
  module.def("registered", &env::registered_envs, "The native environments, by id.");
  module.def("is_registered", &env::is_registered, "id"_a);
  module.def("find", &env::find_env, "id"_a,
             "The EnvSpec of `id`; ValueError naming the nearest ids when there is none.");
  module.def(
      "load_plugin",
      [](const std::string& path, const std::function<bool(const std::string&)>& is_taken) {
        return env::load_plugin(path, is_taken);
      },
      "path"_a, "is_taken"_a.none() = nb::none(),
      "Loads a shared library of environments; the ids that it registered.");
  module.def("loaded_plugins", &env::loaded_plugins, "The paths of the plug-ins loaded so far.");
  module.def(
      "space_from_json",
      [](const std::string& text) {
        const auto json = env::parse_json(text);
        if (json.is_discarded()) throw InvalidArgument("a space that is no JSON");
        return space_to_python(env::space_from_json(json));
      },
      "text"_a, "The Gymnasium space that a checkpoint describes.");
  module.def(
      "space_repr", [](nb::handle space) { return space_from_python(space).repr(); }, "space"_a,
      "How the C++ side writes a Gymnasium space.");
}

void bind_batch(nb::module_& module) {
  nb::class_<OwnedBatch>(module, "BatchEnv",
                         "Native environments stepped in this process. Arrays are views: row i is "
                         "environment i, and the "
                         "next call overwrites them.")
      .def(nb::init<std::string_view, int, std::string_view>(), "id"_a, "count"_a = 1,
           "args"_a = "{}")
      .def("__len__", &OwnedBatch::count)
      .def_prop_ro(
          "observation_space",
          [](OwnedBatch& self) { return space_to_python(self.batch().observation_space()); })
      .def_prop_ro("action_space",
                   [](OwnedBatch& self) { return space_to_python(self.batch().action_space()); })
      .def_prop_ro(
          "obs",
          [](nb::handle_t<OwnedBatch> self) { return nb::cast<OwnedBatch&>(self).obs(self); })
      .def_prop_ro(
          "actions",
          [](nb::handle_t<OwnedBatch> self) { return nb::cast<OwnedBatch&>(self).actions(self); })
      .def_prop_ro(
          "reward",
          [](nb::handle_t<OwnedBatch> self) { return nb::cast<OwnedBatch&>(self).reward(self); })
      .def_prop_ro("terminated",
                   [](nb::handle_t<OwnedBatch> self) {
                     return nb::cast<OwnedBatch&>(self).terminated(self);
                   })
      .def_prop_ro(
          "truncated",
          [](nb::handle_t<OwnedBatch> self) { return nb::cast<OwnedBatch&>(self).truncated(self); })
      .def(
          "reset",
          [](OwnedBatch& self, int i, std::optional<std::uint64_t> seed, std::string_view options) {
            const auto parsed = env::ResetOptions::from_json(options);
            self.batch().check_reset_options(parsed);
            self.batch().reset_with(self.checked(i), seed, parsed);
          },
          "i"_a = 0, "seed"_a = nb::none(), "options"_a = "",
          "Begins an episode in environment i; options are JSON, \"\" for none.")
      .def("step", &OwnedBatch::step, "lo"_a = 0, "hi"_a = nb::none(),
           "Steps environments [lo, hi) with their rows of `actions`.")
      .def(
          "state", [](OwnedBatch& self, int i) { return self.batch().state(self.checked(i)); },
          "i"_a = 0, "The numbers that, with the action, decide the next step.")
      .def(
          "set_state",
          [](OwnedBatch& self, const std::vector<double>& state, int i) {
            self.batch().set_state(self.checked(i), state);
          },
          "state"_a, "i"_a = 0);
}

void bind_random(nb::module_& module) {
  nb::class_<env::NpRandom>(module, "NpRandom",
                            "The stream of numpy.random.Generator(numpy.random.PCG64(seed)).")
      .def(nb::init<>())
      .def(nb::init<std::uint64_t>(), "seed"_a)
      .def("random_raw", &env::NpRandom::next_u64)
      .def("random", &env::NpRandom::random)
      .def("uniform", &env::NpRandom::uniform, "low"_a = 0.0, "high"_a = 1.0)
      .def("integers", &env::NpRandom::integers, "low"_a, "high"_a);
}

}  // namespace

void bind_env(nb::module_& module) {
  nb::module_ env =
      module.def_submodule("env", "Native environments by id, and NumPy's random stream.");
  bind_registry(env);
  bind_batch(env);
  bind_random(env);
}

}  // namespace shoal::python
