// shoal._core.collect: experience of vector environments, written by C++ into arrays that Python
// gets without a copy.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "numpy_api.h"
#include "shoal/collect/experience_collector.h"
#include "shoal/collect/progress_board.h"
#include "shoal/collect/weight_store.h"
#include "shoal/env/space.h"
#include "shoal/ipc/heap/block.h"
#include "shoal/os/error.h"
#include "shoal/os/fd.h"
#include "shoal/vector/call_gate.h"
#include "shoal/vector/vector_env.h"
#include "vector/copy_plan.h"
#include "vector/spaces.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using collect::Actor;
using collect::Decision;
using collect::Experience;
using collect::ExperienceCollector;
using collect::ExperienceCollectorState;
using collect::ProgressBoard;
using collect::WeightStore;
using EnvsPtr = std::shared_ptr<vector::VectorEnv>;

/// A Python function that is given the row of the experience, which it has views of, and writes the
/// actions there.
class CallableActor final : public Actor {
 public:
  explicit CallableActor(nb::handle function) : function_(function) {}
  void act(const Decision& decision) override {
    vector::CallGate::check();
    const nb::gil_scoped_acquire gil;
    function_(decision.t);
  }

 private:
  nb::handle function_;
};

/// A C++ actor in whose long calls Ctrl-C is seen.
class InterruptibleActor final : public Actor {
 public:
  explicit InterruptibleActor(Actor& actor) : actor_(actor) {}
  void act(const Decision& decision) override {
    vector::CallGate::check();
    actor_.act(decision);
    check_();
  }

 private:
  Actor& actor_;
  SignalCheck check_;
};

/// The experience of some environments, and how it looks in Python: the same arguments give the same
/// layout in every process.
class ExperienceLayout {
 public:
  ExperienceLayout(nb::handle observation_space, nb::handle action_space, int envs, bool next_obs)
      : observations_(observation_space) {
    ensure_numpy();
    spec_.envs = envs;
    const env::Space observation = space_from_python(observation_space);
    for (const env::Leaf& leaf : env::leaves(observation)) spec_.obs.push_back(leaf.spec);
    const env::Space action = space_from_python(action_space);
    const auto actions = env::leaves(action);
    if (actions.size() != 1)
      throw InvalidArgument("experience has one array of actions; flatten them with a wrapper");
    spec_.action = actions[0].spec;
    spec_.next_obs = next_obs;
    spec_.log_prob = spec_.value = true;
  }

  Experience allocate(int steps) const {
    const nb::gil_scoped_release unlocked;
    return Experience::allocate(spec_, steps);
  }

  Experience attach(const ipc::Block& block, int steps) const {
    return Experience::attach(spec_, steps, block);
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
    for (const auto& [name, view] : single) arrays[name] = array_view(view, owner, true);
    return arrays;
  }

 private:
  CopyPlan observations_;
  collect::ExperienceSpec spec_;
};

/// A call of several vector environments, which are left in the opposite order.
struct Insides {
  std::deque<vector::CallGate::Inside> calls;
  ~Insides() {
    while (!calls.empty()) calls.pop_back();
  }
};

/// An ExperienceCollector.
///
/// Threads: one at a time, with the GIL.
class PyCollector {
 public:
  PyCollector(EnvsPtr envs, std::optional<double> timeout, int first_env, int total_envs)
      : envs_(std::move(envs)), collector_(*envs_, nanoseconds(timeout), first_env, total_envs) {}

  ExperienceCollector& get() noexcept { return collector_; }

  void reset(const std::vector<std::optional<std::uint64_t>>& seeds) {
    const vector::CallGate::Inside inside(envs_->gate());
    const nb::gil_scoped_release unlocked;
    collector_.reset(seeds);
  }

  int collect(nb::handle actor, const Experience& experience, int first, int count,
              std::int64_t policy_version, int column, const Experience* stage, int stage_column,
              const ProgressBoard* board, int place, std::uint64_t number) {
    const vector::CallGate::Inside inside(envs_->gate());
    std::optional<collect::ProgressLine> progress;
    if (board != nullptr) progress = board->line(place);
    const collect::CollectOrder order{.first = first,
                                      .count = count,
                                      .policy_version = policy_version,
                                      .column = column,
                                      .stage = stage,
                                      .stage_column = stage_column,
                                      .progress = progress ? &*progress : nullptr,
                                      .number = number};
    CallableActor callable(actor);
    if (!nb::isinstance<Actor>(actor)) return run(callable, experience, order);
    InterruptibleActor native(nb::cast<Actor&>(actor));
    return run(native, experience, order);
  }

  static void collect_in_turn(const std::vector<PyCollector*>& collectors, const nb::list& actors,
                              const std::vector<int>& columns, const Experience& experience,
                              int first, int count, std::int64_t policy_version) {
    std::vector<std::unique_ptr<Actor>> callables;
    std::vector<ExperienceCollector::Cohort> cohorts;
    Insides inside;
    for (std::size_t i = 0; i < collectors.size(); ++i) {
      inside.calls.emplace_back(collectors[i]->envs_->gate());
      const nb::handle actor = actors[i];
      if (nb::isinstance<Actor>(actor)) {
        callables.push_back(std::make_unique<InterruptibleActor>(nb::cast<Actor&>(actor)));
      } else {
        callables.push_back(std::make_unique<CallableActor>(actor));
      }
      cohorts.push_back({&collectors[i]->collector_, callables.back().get(), columns.at(i)});
    }
    const nb::gil_scoped_release unlocked;
    ExperienceCollector::collect_in_turn(
        cohorts, experience, {.first = first, .count = count, .policy_version = policy_version});
  }

  void leave_out(const Experience& experience, int first, int count, std::int64_t policy_version,
                 int column) const {
    const nb::gil_scoped_release unlocked;
    collector_.leave_out(
        experience,
        {.first = first, .count = count, .policy_version = policy_version, .column = column});
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
  int run(Actor& actor, const Experience& experience, const collect::CollectOrder& order) {
    const nb::gil_scoped_release unlocked;
    return collector_.collect(actor, experience, order);
  }

  EnvsPtr envs_;
  ExperienceCollector collector_;
};

int traverse_collector(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyCollector>(self)->traverse(visit, arg) : 0;
}

using ByteArray = nb::ndarray<nb::ro, std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Room = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void bind_weights(nb::module_& module) {
  nb::class_<WeightStore>(module, "WeightStore",
                          "Weights of fixed size in shared memory, published by version; see "
                          "src/shoal/collect/weight_store.h.")
      .def_static("create", &WeightStore::create, "nbytes"_a,
                  "slots"_a = WeightStore::kDefaultSlots)
      .def_static(
          "attach", [](int fd) { return WeightStore::attach(os::Fd(fd)); }, "fd"_a,
          "That of another process; takes over the descriptor.")
      .def_prop_ro("fd", &WeightStore::fd)
      .def_prop_ro("nbytes", &WeightStore::bytes)
      .def_prop_ro("version", &WeightStore::version, "The newest; 0: none was published yet.")
      .def(
          "publish",
          [](WeightStore& self, const ByteArray& weights) {
            const auto* data = reinterpret_cast<const std::byte*>(weights.data());
            const std::span<const std::byte> bytes(data, weights.size());
            const nb::gil_scoped_release unlocked;
            return self.publish(bytes);
          },
          "weights"_a, nb::sig("def publish(self, weights: numpy.ndarray) -> int"),
          "Makes these bytes the newest weights; returns their version.")
      .def(
          "read",
          [](const WeightStore& self, const Room& weights) {
            const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(weights.data()),
                                             weights.size());
            const nb::gil_scoped_release unlocked;
            return self.read(bytes);
          },
          "weights"_a, nb::sig("def read(self, weights: numpy.ndarray) -> int"),
          "Copies the newest weights, whole; returns their version.");
}

void bind_progress(nb::module_& module) {
  nb::class_<ProgressBoard>(module, "ProgressBoard",
                            "How far collectors in other processes are, and where they are to "
                            "stop; see src/shoal/collect/progress_board.h.")
      .def_static("create", &ProgressBoard::create, "collectors"_a)
      .def(nb::init<ipc::Block>(), "block"_a)
      .def_prop_ro("block", &ProgressBoard::block)
      .def(
          "rows", [](const ProgressBoard& self, int i) { return self.line(i).rows(); },
          "collector"_a)
      .def(
          "signs", [](const ProgressBoard& self, int i) { return self.line(i).signs(); },
          "collector"_a)
      .def(
          "give_sign", [](const ProgressBoard& self, int i) { self.line(i).give_sign(); },
          "collector"_a)
      .def(
          "stop",
          [](const ProgressBoard& self, int i, std::uint64_t number) { self.line(i).stop(number); },
          "collector"_a, "number"_a);
}

PyType_Slot collector_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_collector)},
                                 {0, nullptr}};

}  // namespace

void bind_collect(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("collect", "Experience of vector environments.");
  nb::class_<Actor>(module, "Actor", "Chooses actions in C++.");
  nb::class_<Experience>(module, "Experience", "The arrays of one batch, in one shared block.")
      .def_prop_ro("block", &Experience::block);
  nb::class_<ExperienceLayout>(module, "ExperienceLayout",
                               "Where the arrays of some environments' experience lie: the same "
                               "in every process for the same arguments.")
      .def(nb::init<nb::handle, nb::handle, int, bool>(), "observation_space"_a, "action_space"_a,
           "envs"_a, "next_obs"_a)
      .def("allocate", &ExperienceLayout::allocate, "steps"_a)
      .def("attach", &ExperienceLayout::attach, "block"_a, "steps"_a)
      .def("arrays", &ExperienceLayout::arrays, "experience"_a);
  bind_progress(module);
  bind_weights(module);
  nb::class_<PyCollector>(module, "Collector", nb::type_slots(collector_slots))
      .def(nb::init<EnvsPtr, std::optional<double>, int, int>(), "envs"_a, "timeout"_a.none(),
           "first_env"_a = 0, "total_envs"_a = 0)
      .def("reset", &PyCollector::reset, "seeds"_a)
      .def("collect", &PyCollector::collect, "actor"_a, "experience"_a, "first"_a, "count"_a,
           "policy_version"_a, nb::kw_only(), "column"_a = 0, "stage"_a = nb::none(),
           "stage_column"_a = 0, "board"_a = nb::none(), "place"_a = 0, "number"_a = 0,
           "Fills rows first … first + count - 1, and returns how many of them are steps. `actor`: "
           "an Actor, or a function that is called with each row's number and writes that row's "
           "actions. The rest as in src/shoal/collect/experience_collector.h.")
      .def("leave_out", &PyCollector::leave_out, "experience"_a, "first"_a, "count"_a,
           "policy_version"_a, "column"_a = 0,
           "Makes rows of its environments zeros that are not valid.")
      .def_static("collect_in_turn", &PyCollector::collect_in_turn, "collectors"_a, "actors"_a,
                  "columns"_a, "experience"_a, "first"_a, "count"_a, "policy_version"_a,
                  "Fills rows of all of them: while the environments of one are stepped, the next "
                  "one's actor decides.")
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
