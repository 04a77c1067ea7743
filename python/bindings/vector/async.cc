// shoal._core: environments that are stepped one by one, and the worker pools they may live in.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "exceptions.h"
#include "process/worker_options.h"
#include "shoal/os/error.h"
#include "shoal/process/identity/identity.h"
#include "shoal/vector/async/async_local_vector_env.h"
#include "shoal/vector/async/pool_vector_env.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/native/native_stepper.h"
#include "shoal/vector/worker_program/native_worker.h"
#include "shoal/vector/worker_program/pool_worker.h"
#include "vector/async_io.h"
#include "vector/calls.h"
#include "vector/faults.h"
#include "vector/py_stepper.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using EnvsPtr = std::shared_ptr<vector::VectorEnv>;
using PoolPtr = std::shared_ptr<vector::WorkerPool>;

/// Takes `key` out of `given`, where it is.
template <class T, class Set>
void take(nb::dict& given, const char* key, Set set) {
  if (!given.contains(key)) return;
  nb::object value = nb::borrow(given[key]);
  nb::del(given[key]);
  if (!value.is_none()) set(nb::cast<T>(value));
}

/// Options by their names, in seconds where they are times. Throws InvalidArgument for unknown
/// ones.
vector::Options options_of(const nb::dict& keywords) {
  vector::Options options;
  options.interrupt_check = check_call;
  nb::dict left;
  left.update(keywords);
  take<std::string>(left, "autoreset_mode", [&](const std::string& name) {
    options.autoreset_mode = vector::autoreset_mode_from_name(name);
  });
  take<int>(left, "batch_size", [&](int value) { options.batch_size = value; });
  take<int>(left, "cohorts", [&](int value) { options.cohorts = value; });
  take<int>(left, "max_in_flight", [&](int value) { options.max_in_flight = value; });
  take<nb::dict>(left, "workers",
                 [&](const nb::dict& workers) { set_worker_options(options, workers); });
  take<nb::dict>(left, "faults",
                 [&](const nb::dict& policy) { options.faults = fault_policy(policy); });
  if (left.size() != 0) {
    throw InvalidArgument("unknown options: " + nb::cast<std::string>(nb::str(left.keys())));
  }
  return options;
}

EnvsPtr async_serial_vector_env(nb::list envs, nb::object group, const nb::dict& options) {
  std::vector<std::unique_ptr<vector::Stepper>> steppers;
  steppers.push_back(std::make_unique<PyStepper>(std::move(envs), std::move(group), 0));
  return std::make_shared<vector::AsyncLocalVectorEnv>(std::move(steppers), options_of(options));
}

EnvsPtr async_native_vector_env(const std::string& id, int num_envs, int num_workers,
                                const std::string& backend, const std::string& env_args,
                                const nb::dict& options,
                                std::shared_ptr<process::SharedState> shared_state,
                                std::shared_ptr<process::Launcher> launcher) {
  if (launcher) await_ready(*launcher);
  vector::Options all = options_of(options);
  all.shared_state = std::move(shared_state);
  all.launcher = std::move(launcher);
  all.num_envs = num_envs;
  all.num_workers = num_workers;
  all.backend = backend == "serial"    ? vector::Backend::kSerial
                : backend == "process" ? vector::Backend::kProcess
                                       : vector::Backend::kThread;
  all.env_args = env_args;
  if (all.batch_size == 0 && all.cohorts == 0) all.batch_size = num_envs;
  const nb::gil_scoped_release unlocked;
  return vector::VectorEnv::create(id, all);
}

PoolPtr worker_pool(std::shared_ptr<process::Launcher> launcher, nb::list payloads,
                    const nb::dict& workers, std::shared_ptr<process::SharedState> shared_state) {
  await_ready(*launcher);
  std::vector<process::WorkerSpec> specs;
  for (nb::handle payload : payloads) {
    process::WorkerSpec spec;
    spec.name = fmt::format("worker {}", specs.size());
    spec.entry = "python";
    spec.payload = to_vector(payload);
    specs.push_back(std::move(spec));
  }
  vector::Options options;
  set_worker_options(options, workers);
  const nb::gil_scoped_release unlocked;
  return std::make_shared<vector::WorkerPool>(
      std::move(launcher), std::move(specs),
      vector::PoolOptions{.pin_workers = options.pin_workers,
                          .cpus = std::move(options.cpus),
                          .shared_state = std::move(shared_state)});
}

EnvsPtr pool_vector_env(PoolPtr pool, nb::list payloads, const std::vector<int>& counts,
                        const nb::dict& options, bool owns_pool) {
  std::vector<vector::PoolVectorEnv::Payload> all;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    all.push_back({counts[i], to_vector(payloads[i])});
  }
  const vector::Options chosen = options_of(options);
  const nb::gil_scoped_release unlocked;
  return std::make_shared<vector::PoolVectorEnv>(std::move(pool), std::move(all), chosen,
                                                 owns_pool);
}

/// What a session's payload begins with: whose environments they are. That of a pool of rounds is
/// empty: they are Python's.
constexpr std::byte kPython{'P'};
constexpr std::byte kNative{'N'};

nb::bytes native_session(const std::string& id, const std::string& env_args) {
  std::vector<std::byte> payload = vector::native_pool_payload(id, env_args);
  payload.insert(payload.begin(), kNative);
  return to_bytes(payload);
}

vector::PoolWorkerHooks::Opened open_native(std::span<const std::byte> bytes, int count) {
  return {std::make_unique<vector::NativeStepper>(vector::native_pool_batch(bytes, count)), {}, {}};
}

vector::PoolWorkerHooks::Opened open_python(const nb::object& open,
                                            std::span<const std::byte> bytes, int first_env) {
  const nb::gil_scoped_acquire gil;
  const nb::object built = open(to_bytes(bytes), first_env);
  std::unique_ptr<PyStepper> stepper;
  try {
    stepper =
        std::make_unique<PyStepper>(nb::cast<nb::list>(built[0]), nb::borrow(built[1]), first_env,
                                    nb::cast<bool>(built[2]), nb::cast<bool>(built[3]));
  } catch (...) {  // they do not go together: nobody else closes them
    tell_close_failures(nb::object(built[1].attr("close")()));
    throw;
  }
  const PyStepper* const steps = stepper.get();
  return {std::move(stepper), [steps] { return steps->describe_exception(); }, {}};
}

void run_pool_worker(process::WorkerContext& context, const nb::object& open) {
  PyThreadState* state = nullptr;
  vector::run_pool_worker(context.channel, process::this_worker(),
                          {.open =
                               [&](std::span<const std::byte> payload, int first_env, int count) {
                                 if (payload.empty()) return open_python(open, {}, first_env);
                                 return payload[0] == kNative
                                            ? open_native(payload.subspan(1), count)
                                            : open_python(open, payload.subspan(1), first_env);
                               },
                           .describe_opening = [] { return report_current_exception(); },
                           .before_park = [&] { state = PyEval_SaveThread(); },
                           .after_park = [&] { PyEval_RestoreThread(state); }});
}

int traverse_io(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<AsyncIo>(self)->traverse(visit, arg) : 0;
}

PyType_Slot io_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_io)}, {0, nullptr}};

void bind_async_io(nb::module_& module) {
  nb::class_<AsyncIo> io(module, "AsyncIo", nb::type_slots(io_slots));
  bind_readiness(io);
  io.def(nb::init<const EnvsPtr&, nb::handle, nb::handle, bool>(), "envs"_a, "observation_space"_a,
         "action_space"_a, "episode_statistics"_a = false)
      .def("send", in_call(&AsyncIo::send), "actions"_a.none(), "env_ids"_a.none())
      .def("send_reset", in_call(&AsyncIo::send_reset), "seeds"_a.none(), "mask"_a.none())
      .def("tell_with_reset", in_call(&AsyncIo::tell_with_reset), "ids"_a, "messages"_a)
      .def("set_reset_options", in_call(&AsyncIo::set_reset_options), "ids"_a, "options"_a)
      .def("recv", in_call(&AsyncIo::recv), "timeout"_a.none(), "kept"_a = nb::none(),
           "The result is appended to `kept`, too, before a signal's handler can run.")
      .def("discard", in_call(&AsyncIo::discard), "timeout"_a.none())
      .def("reset_async", in_call(&AsyncIo::reset_async), "seeds"_a.none(), "mask"_a.none())
      .def("step_async", in_call(&AsyncIo::step_async), "actions"_a.none())
      .def("reset_wait", in_call(&AsyncIo::reset_wait), "timeout"_a.none())
      .def("step_wait", in_call(&AsyncIo::step_wait), "timeout"_a.none())
      .def_prop_ro("is_under_way", [](const AsyncIo& io) { return io.call().is_under_way(); })
      .def_prop_ro("has_call", [](const AsyncIo& io) { return io.call().exists(); })
      .def("infos", &AsyncIo::infos)
      .def("final_observation", &AsyncIo::final_observation, "slot"_a)
      .def("has_final", &AsyncIo::has_final)
      .def("fault", &AsyncIo::fault)
      .def("episodes", &AsyncIo::episodes)
      .def_prop_ro("env_ids", &AsyncIo::env_ids)
      .def("environments_changed", &AsyncIo::environments_changed);
}

}  // namespace

void bind_async(nb::module_& module) {
  bind_async_io(module);
  nb::class_<vector::WorkerPool>(module, "WorkerPool")
      .def_prop_ro("num_workers", &vector::WorkerPool::num_workers)
      .def_prop_ro("closed", &vector::WorkerPool::closed)
      .def("pid", nb::overload_cast<int>(&vector::WorkerPool::pid, nb::const_), "worker"_a)
      .def("close", &vector::WorkerPool::close, nb::call_guard<nb::gil_scoped_release>());
  module.def("worker_pool", &worker_pool, "launcher"_a, "payloads"_a, "workers"_a,
             "shared_state"_a);
  module.def("pool_vector_env", &pool_vector_env, "pool"_a, "payloads"_a, "counts"_a, "options"_a,
             "owns_pool"_a);
  module.def("async_serial_vector_env", &async_serial_vector_env, "envs"_a, "group"_a, "options"_a);
  module.def("async_native_vector_env", &async_native_vector_env, "id"_a, "num_envs"_a,
             "num_workers"_a, "backend"_a, "env_args"_a, "options"_a, "shared_state"_a,
             "launcher"_a = nb::none());
  module.def("native_session", &native_session, "id"_a, "env_args"_a);
  module.def("run_pool_worker", &run_pool_worker, "context"_a, "open"_a);
}

}  // namespace shoal::python
