// shoal._core: vector environments, over native and over Python environments.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "exceptions.h"
#include "process/worker_options.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/vector/async/pool_vector_env.h"
#include "shoal/vector/fault/fault_account.h"
#include "shoal/vector/local/serial_vector_env.h"
#include "shoal/vector/native/engine_request.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/vector_env.h"
#include "vector/batch_io.h"
#include "vector/calls.h"
#include "vector/faults.h"
#include "vector/py_stepper.h"
#include "vector/spaces.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using vector::VectorEnv;
using EnvsPtr = std::shared_ptr<VectorEnv>;

/// Of a list of `bytes`.
std::vector<std::vector<std::byte>> to_vectors(const nb::list& list) {
  std::vector<std::vector<std::byte>> all;
  for (const nb::handle bytes : list) all.push_back(to_vector(bytes));
  return all;
}

nb::list to_list(std::span<const std::vector<std::byte>> all) {
  nb::list list;
  for (const auto& bytes : all) list.append(to_bytes(bytes));
  return list;
}

vector::Backend backend_from_name(std::string_view name) {
  if (name == "serial") return vector::Backend::kSerial;
  if (name == "thread") return vector::Backend::kThread;
  if (name == "process") return vector::Backend::kProcess;
  return vector::Backend::kAuto;
}

vector::Options options(const std::string& autoreset_mode, const nb::dict& faults) {
  vector::Options options;
  options.autoreset_mode = vector::autoreset_mode_from_name(autoreset_mode);
  options.faults = fault_policy(faults);
  options.interrupt_check = check_call;
  return options;
}

EnvsPtr serial_vector_env(nb::list envs, nb::object group, const std::string& autoreset_mode,
                          bool same_observations, bool exact) {
  std::vector<std::unique_ptr<vector::Stepper>> steppers;
  steppers.push_back(
      std::make_unique<PyStepper>(std::move(envs), std::move(group), 0, same_observations, exact));
  return std::make_shared<vector::SerialVectorEnv>(
      std::move(steppers), vector::autoreset_mode_from_name(autoreset_mode), exact);
}

EnvsPtr native_vector_env(const std::string& id, int num_envs, int num_workers,
                          const std::string& backend, const std::string& autoreset_mode,
                          const nb::dict& faults, const std::string& env_args,
                          std::shared_ptr<process::SharedState> shared_state,
                          std::shared_ptr<process::Launcher> launcher, const nb::dict& workers) {
  if (launcher) await_ready(*launcher);
  vector::Options all = options(autoreset_mode, faults);
  set_worker_options(all, workers);
  all.launcher = std::move(launcher);
  all.num_envs = num_envs;
  all.num_workers = num_workers;
  all.backend = backend_from_name(backend);
  all.env_args = env_args;
  all.shared_state = std::move(shared_state);
  const nb::gil_scoped_release unlocked;
  return VectorEnv::create(id, all);
}

EnvsPtr process_vector_env(std::shared_ptr<process::Launcher> launcher, nb::list payloads,
                           const std::vector<int>& counts, const std::string& autoreset_mode,
                           const nb::dict& faults, const nb::dict& worker_options, bool lend_obs,
                           std::shared_ptr<process::SharedState> shared_state,
                           bool step_before_reset) {
  await_ready(*launcher);
  std::vector<process::WorkerSpec> workers;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    process::WorkerSpec worker;
    worker.name = fmt::format("worker {}", i);
    worker.entry = "python";
    worker.payload = to_vector(payloads[i]);
    worker.num_envs = counts[i];
    workers.push_back(std::move(worker));
  }
  vector::Options all = options(autoreset_mode, faults);
  set_worker_options(all, worker_options);
  all.lend_obs = lend_obs;
  all.shared_state = std::move(shared_state);
  all.step_before_reset = step_before_reset;
  const nb::gil_scoped_release unlocked;
  return std::make_shared<vector::ProcessVectorEnv>(std::move(launcher), std::move(workers), all);
}

vector::ProcessVectorEnv& process_env(VectorEnv& envs) {
  auto* process = dynamic_cast<vector::ProcessVectorEnv*>(&envs);
  if (process == nullptr) throw InvalidState("these environments are not in worker processes");
  return *process;
}

/// One message a worker; b"" asks a worker nothing.
void request_async(VectorEnv& envs, const nb::list& messages) {
  const auto all = to_vectors(messages);
  const nb::gil_scoped_release unlocked;
  envs.request_async(all);
}

/// The answers are in `kept`, too, before a signal's handler can run.
nb::list request_wait(VectorEnv& envs, std::optional<double> timeout,
                      std::optional<nb::list> kept) {
  std::vector<std::vector<std::byte>> answers;
  {
    const nb::gil_scoped_release unlocked;
    answers = envs.request_wait(nanoseconds(timeout));
  }
  nb::list listed = to_list(answers);
  if (kept) kept->extend(listed);
  return listed;
}

nb::list snapshot(VectorEnv& envs, const std::vector<int>& ids) {
  std::vector<std::vector<std::byte>> states;
  {
    const nb::gil_scoped_release unlocked;
    states = vector::snapshot(envs, ids);
  }
  return to_list(states);
}

void restore(VectorEnv& envs, const std::vector<int>& ids, const nb::list& states) {
  const auto all = to_vectors(states);
  const nb::gil_scoped_release unlocked;
  vector::restore(envs, ids, all);
}

void close_now(VectorEnv& envs, std::optional<double> timeout) {
  const nb::gil_scoped_release unlocked;
  if (timeout) {
    envs.close_within(milliseconds(*timeout));
  } else {
    envs.close();
  }
  const VectorEnv::CloseOutcome outcome = envs.take_close_outcome();
  if (outcome.interrupt) {
    for (const process::RemoteError& failure : outcome.failures) {
      os::log(os::LogLevel::kError, "vector", "while it was closed: {}", failure.what());
    }
    std::rethrow_exception(outcome.interrupt);
  }
  if (outcome.failures.empty()) return;
  process::RemoteError first = outcome.failures.front();
  for (std::size_t i = 1; i < outcome.failures.size(); ++i) first.also(outcome.failures[i]);
  throw first;
}

/// In a handler of a signal that came in the midst of a call it is closed as that call ends, which it does soon.
void close(const EnvsPtr& envs, std::optional<double> timeout) {
  vector::CallGate& gate = envs->gate();
  gate.close([envs, timeout] { close_now(*envs, timeout); },
             [&](os::Deadline until) {
               {
                 const nb::gil_scoped_release unlocked;
                 gate.await_leaving(until);
               }
               check_signals();
             });
}

nb::dict stats(const VectorEnv& envs) {
  const vector::Stats all = envs.stats();
  nb::list workers;
  for (const vector::WorkerStats& worker : all.workers) {
    nb::dict entry;
    entry["first_env"] = worker.first_env;
    entry["num_envs"] = worker.num_envs;
    entry["pid"] = worker.pid;
    entry["steps"] = worker.steps;
    entry["resets"] = worker.resets;
    entry["requests"] = worker.requests;
    entry["busy_seconds"] = static_cast<double>(worker.busy_ns) * 1e-9;
    entry["parks"] = worker.parks;
    entry["restarts"] = worker.restarts;
    entry["steals"] = worker.steals;
    workers.append(entry);
  }
  nb::dict result;
  result["steps"] = all.steps;
  result["resets"] = all.resets;
  result["wait_seconds"] = static_cast<double>(all.wait_ns) * 1e-9;
  result["parks"] = all.parks;
  if (!all.placement.empty()) result["placement"] = all.placement;
  result["workers"] = workers;
  return result;
}

// A serial VectorEnv holds Python environments, whose code may hold the VectorEnv: the collector
// has to see through it.

int traverse_envs(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const PyStepper* stepper = local_stepper(*nb::inst_ptr<VectorEnv>(self));
  return stepper == nullptr ? 0 : stepper->traverse(visit, arg);
}

int clear_envs(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  if (PyStepper* stepper = local_stepper(*nb::inst_ptr<VectorEnv>(self))) stepper->release();
  return 0;
}

int traverse_io(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<BatchIo>(self)->traverse(visit, arg) : 0;
}

PyType_Slot envs_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_envs)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_envs)},
                            {0, nullptr}};
PyType_Slot io_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_io)}, {0, nullptr}};

void bind_batch_io(nb::module_& module) {
  nb::class_<BatchIo> io(module, "BatchIo", nb::type_slots(io_slots));
  bind_readiness(io);
  io.def(nb::init<EnvsPtr, nb::handle, nb::handle, bool, bool, bool>(), "envs"_a,
         "observation_space"_a, "action_space"_a, "copy"_a, "exact"_a = false,
         "episode_statistics"_a = false)
      .def("reset_async", in_call(&BatchIo::reset_async), "seeds"_a.none(), "mask"_a.none())
      .def("step_async", in_call(&BatchIo::step_async), "actions"_a.none())
      .def_prop_ro("sends_actions", &BatchIo::sends_actions)
      .def("store_actions", in_call(&BatchIo::store_actions), "actions"_a.none())
      .def("step_stored", in_call(&BatchIo::step_stored))
      .def_prop_ro("is_under_way", [](const BatchIo& io) { return io.call().is_under_way(); })
      .def_prop_ro("has_call", [](const BatchIo& io) { return io.call().exists(); })
      .def("samples_of", &BatchIo::samples_of, "actions"_a.none(), "count"_a)
      .def("fits", &BatchIo::fits, "actions"_a.none())
      .def("reset_wait", in_call(&BatchIo::reset_wait), "timeout"_a.none())
      .def("step_wait", in_call(&BatchIo::step_wait), "timeout"_a.none())
      .def("infos", &BatchIo::infos)
      .def("final_observation", &BatchIo::final_observation, "row"_a)
      .def("environments_changed", &BatchIo::environments_changed)
      .def("has_final", &BatchIo::has_final)
      .def("fault", &BatchIo::fault)
      .def("episodes", &BatchIo::episodes);
  module.attr("EXTRA_INFOS") = static_cast<int>(BatchIo::kInfos);
  module.attr("EXTRA_FINAL") = static_cast<int>(BatchIo::kFinal);
  module.attr("EXTRA_FAULT") = static_cast<int>(BatchIo::kFault);
  module.attr("EXTRA_EPISODES") = static_cast<int>(BatchIo::kEpisodes);
}

}  // namespace

void bind_vector(nb::module_& module) {
  nb::class_<VectorEnv>(module, "VectorEnv", nb::type_slots(envs_slots))
      .def_prop_ro("num_envs", &VectorEnv::num_envs)
      .def_prop_ro("num_workers", &VectorEnv::num_workers)
      .def_prop_ro("has_objects",
                   [](const VectorEnv& envs) {
                     return env::first_opaque(envs.single_observation_space()) != nullptr ||
                            env::first_opaque(envs.single_action_space()) != nullptr;
                   })
      .def_prop_ro("batch_size", &VectorEnv::batch_size)
      .def_prop_ro("in_flight", &VectorEnv::in_flight)
      .def(
          "check_resettable",
          [](VectorEnv& envs, const std::vector<std::int64_t>& env_ids) {
            if (auto* async = dynamic_cast<vector::AsyncVectorEnv*>(&envs)) {
              async->require_resettable(env_ids);
            }
          },
          "env_ids"_a)
      .def_prop_ro(
          "single_observation_space",
          [](const VectorEnv& envs) { return space_to_python(envs.single_observation_space()); })
      .def_prop_ro(
          "single_action_space",
          [](const VectorEnv& envs) { return space_to_python(envs.single_action_space()); })
      .def(
          "hello",
          [](VectorEnv& envs, int worker) {
            const auto* pool = dynamic_cast<vector::PoolVectorEnv*>(&envs);
            return to_bytes(
                (pool != nullptr ? pool->hello(worker) : process_env(envs).hello(worker)).extra);
          },
          "worker"_a)
      .def(
          "request",
          [](VectorEnv& envs, int worker, const nb::bytes& message, std::optional<double> timeout) {
            const vector::CallGate::Inside inside(envs.gate());
            std::vector<std::byte> reply;
            {
              const nb::gil_scoped_release unlocked;
              reply = envs.request(worker, view(message), nanoseconds(timeout));
            }
            return to_bytes(reply);
          },
          "worker"_a, "message"_a, "timeout"_a = nb::none())
      .def("request_async", in_call(&request_async), "messages"_a)
      .def("request_wait", in_call(&request_wait), "timeout"_a = nb::none(), "kept"_a = nb::none())
      .def("snapshot", in_call(&snapshot), "ids"_a, "The states of these environments, as bytes.")
      .def("restore", in_call(&restore), "ids"_a, "states"_a)
      .def(
          "set_reset_options",
          [](VectorEnv& envs, std::string_view options) {
            const vector::CallGate::Inside inside(envs.gate());
            const nb::gil_scoped_release unlocked;
            vector::set_reset_options(envs, options);
          },
          "options"_a,
          "Of explicit resets of native environments from now on: JSON, \"\" for none.")
      .def("stats", &stats)
      .def(
          "set_title",
          [](VectorEnv& envs, const std::string& title) {
            if (auto* boarded = dynamic_cast<vector::Boarded*>(&envs)) {
              boarded->board().set_title(title);
            }
          },
          "title"_a, "What the environments are, for `shoal stat`.")
      .def("health", &health)
      .def("faults", &faults)
      .def(
          "require_open",
          [](const VectorEnv& envs, const std::string& call) { envs.require_open(call.c_str()); },
          "call"_a, "A RuntimeError where close() or a failure has ended them, which says why.")
      .def("close", &close, "timeout"_a = nb::none());
  module.def(
      "has_objects",
      [](nb::handle space) { return env::first_opaque(space_from_python(space)) != nullptr; },
      "space"_a);
  module.def(
      "renewal_seed", &vector::renewal_seed, "seed"_a, "restarts"_a,
      "The seed of a lost environment's successor. Args: seed: the last that its row was given. "
      "restarts: how many successors there were before.");
  module.def("same_space", &same_space, "a"_a, "b"_a);
  module.def("serial_vector_env", &serial_vector_env, "envs"_a, "group"_a, "autoreset_mode"_a,
             "same_observations"_a = true, "exact"_a = false);
  module.def("native_vector_env", &native_vector_env, "id"_a, "num_envs"_a, "num_workers"_a,
             "backend"_a, "autoreset_mode"_a, "faults"_a, "env_args"_a,
             "shared_state"_a = nb::none(), "launcher"_a = nb::none(), "workers"_a = nb::dict());
  module.def("process_vector_env", &process_vector_env, "launcher"_a, "payloads"_a, "counts"_a,
             "autoreset_mode"_a, "faults"_a, "workers"_a, "lend_obs"_a,
             "shared_state"_a = nb::none(), "step_before_reset"_a = false);
  bind_batch_io(module);
}

}  // namespace shoal::python
