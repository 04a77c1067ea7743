// shoal._core.collect: experience of vector environments, written by C++ into arrays that Python
// gets without a copy.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "numpy_api.h"
#include "shoal/collect/experience_collector.h"
#include "shoal/ipc/heap/block.h"
#include "shoal/vector/vector_env.h"
#include "vector/copy_plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using collect::Actor;
using collect::Decision;
using collect::Experience;
using collect::ExperienceCollector;
using collect::ExperienceCollectorState;
using EnvsPtr = std::shared_ptr<vector::VectorEnv>;

/// A Python function that is given the row of the experience, which it has views of, and writes the
/// actions there.
class CallableActor final : public Actor {
 public:
  explicit CallableActor(nb::handle function) : function_(function) {}
  void act(const Decision& decision) override {
    const nb::gil_scoped_acquire gil;
    function_(decision.t);
  }

 private:
  nb::handle function_;
};

/// A C++ actor in whose long calls Ctrl-C is seen: Python is asked every 50 ms at most.
class InterruptibleActor final : public Actor {
 public:
  explicit InterruptibleActor(Actor& actor) : actor_(actor) {}
  void act(const Decision& decision) override {
    actor_.act(decision);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(50);
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  Actor& actor_;
  std::chrono::steady_clock::time_point next_{};
};

/// An ExperienceCollector, and how its observations look in Python.
///
/// Threads: one at a time, with the GIL.
class PyCollector {
 public:
  PyCollector(EnvsPtr envs, nb::handle observation_space, std::optional<double> timeout)
      : envs_(std::move(envs)),
        observations_(observation_space),
        collector_(*envs_, duration(timeout)) {
    ensure_numpy();
  }

  ExperienceCollector& get() noexcept { return collector_; }

  void reset(const std::vector<std::optional<std::uint64_t>>& seeds) {
    const nb::gil_scoped_release unlocked;
    collector_.reset(seeds);
  }

  Experience allocate(int steps, bool next_obs, bool log_prob, bool value) const {
    collect::ExperienceSpec spec = collector_.spec();
    spec.next_obs = next_obs;
    spec.log_prob = log_prob;
    spec.value = value;
    const nb::gil_scoped_release unlocked;
    return Experience::allocate(spec, steps);
  }

  /// Views, which keep the experience's block.
  nb::dict arrays(const Experience& experience) const {
    const nb::object owner = nb::cast(experience.block());
    nb::dict arrays;
    arrays["obs"] = observations_.view_batch(experience.obs(), owner);
    if (!experience.next_obs().empty())
      arrays["next_obs"] = observations_.view_batch(experience.next_obs(), owner);
    const std::pair<const char*, const shm::TensorView&> single[] = {
        {"action", experience.action()},
        {"reward", experience.reward()},
        {"terminated", experience.terminated()},
        {"truncated", experience.truncated()},
        {"valid", experience.valid()},
        {"is_first", experience.is_first()},
        {"log_prob", experience.log_prob()},
        {"value", experience.value()},
        {"episode_id", experience.episode_id()},
        {"env_id", experience.env_id()},
        {"policy_version", experience.policy_version()}};
    for (const auto& [name, view] : single) {
      if (view.data != nullptr) arrays[name] = array_view(view, owner, true);
    }
    return arrays;
  }

  void collect(nb::handle actor, const Experience& experience, int first, int count,
               std::int64_t policy_version) {
    CallableActor callable(actor);
    if (!nb::isinstance<Actor>(actor))
      return run(callable, experience, first, count, policy_version);
    InterruptibleActor native(nb::cast<Actor&>(actor));
    run(native, experience, first, count, policy_version);
  }

  nb::dict state() const {
    const ExperienceCollectorState state = collector_.state();
    nb::dict result;
    result["steps"] = state.steps;
    result["resets"] = state.resets;
    result["faults"] = state.faults;
    nb::list obs;
    for (const auto& leaf : state.obs) obs.append(nb::bytes(leaf.data(), leaf.size()));
    result["obs"] = obs;
    result["episode"] = state.episode;
    result["is_first"] = nb::bytes(state.is_first.data(), state.is_first.size());
    result["running_return"] = state.running_return;
    result["running_length"] = state.running_length;
    nb::list window;
    for (const collect::Episode& episode : state.window)
      window.append(nb::make_tuple(episode.env, episode.episode_return, episode.length));
    result["window"] = window;
    result["finished"] = state.finished;
    return result;
  }

  void load_state(const nb::dict& given) {
    ExperienceCollectorState state;
    state.steps = nb::cast<std::uint64_t>(given["steps"]);
    state.resets = nb::cast<std::int64_t>(given["resets"]);
    state.faults = nb::cast<std::int64_t>(given["faults"]);
    for (nb::handle leaf : given["obs"]) {
      const auto bytes = nb::cast<nb::bytes>(leaf);
      const auto* data = static_cast<const std::byte*>(bytes.data());
      state.obs.emplace_back(data, data + bytes.size());
    }
    state.episode = nb::cast<std::vector<std::int64_t>>(given["episode"]);
    const auto is_first = nb::cast<nb::bytes>(given["is_first"]);
    const auto* flags = static_cast<const std::uint8_t*>(is_first.data());
    state.is_first.assign(flags, flags + is_first.size());
    state.running_return = nb::cast<std::vector<double>>(given["running_return"]);
    state.running_length = nb::cast<std::vector<std::int64_t>>(given["running_length"]);
    for (nb::handle episode : given["window"]) {
      state.window.push_back({nb::cast<int>(episode[0]), nb::cast<double>(episode[1]),
                              nb::cast<std::int64_t>(episode[2])});
    }
    state.finished = nb::cast<std::int64_t>(given["finished"]);
    collector_.restore(std::move(state));
  }

  int traverse(visitproc visit, void* arg) const {
    const nb::handle envs = nb::find(envs_);
    Py_VISIT(envs.ptr());
    return 0;
  }

 private:
  static std::optional<std::chrono::nanoseconds> duration(std::optional<double> seconds) {
    if (!seconds) return {};
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(*seconds));
  }

  void run(Actor& actor, const Experience& experience, int first, int count,
           std::int64_t policy_version) {
    const nb::gil_scoped_release unlocked;
    collector_.collect(actor, experience, first, count, policy_version);
  }

  EnvsPtr envs_;
  CopyPlan observations_;
  ExperienceCollector collector_;
};

int traverse_collector(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyCollector>(self)->traverse(visit, arg) : 0;
}

PyType_Slot collector_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_collector)},
                                 {0, nullptr}};

}  // namespace

void bind_collect(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("collect", "Experience of vector environments.");
  nb::class_<Actor>(module, "Actor", "Chooses actions in C++.");
  nb::class_<Experience>(module, "Experience", "The arrays of one batch, in one shared block.");
  nb::class_<PyCollector>(module, "Collector", nb::type_slots(collector_slots))
      .def(nb::init<EnvsPtr, nb::handle, std::optional<double>>(), "envs"_a, "observation_space"_a,
           "timeout"_a.none())
      .def("reset", &PyCollector::reset, "seeds"_a)
      .def("allocate", &PyCollector::allocate, "steps"_a, "next_obs"_a, "log_prob"_a, "value"_a)
      .def("arrays", &PyCollector::arrays, "experience"_a)
      .def("collect", &PyCollector::collect, "actor"_a, "experience"_a, "first"_a, "count"_a,
           "policy_version"_a,
           "Fills rows first … first + count - 1. `actor`: an Actor, or a function that is called "
           "with each row's number and writes that row's actions.")
      .def("state", &PyCollector::state)
      .def("load_state", &PyCollector::load_state, "state"_a)
      .def_prop_ro("resets", [](PyCollector& self) { return self.get().resets(); })
      .def_prop_ro("faults", [](PyCollector& self) { return self.get().faults(); })
      .def_prop_ro("episodes", [](PyCollector& self) { return self.get().episodes().count(); })
      .def_prop_ro("mean_return",
                   [](PyCollector& self) { return self.get().episodes().mean_return(); })
      .def_prop_ro("mean_length",
                   [](PyCollector& self) { return self.get().episodes().mean_length(); });
}

}  // namespace shoal::python
