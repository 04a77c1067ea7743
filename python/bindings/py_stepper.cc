#include "py_stepper.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

#include "exceptions.h"
#include "shoal/os/error.h"
#include "spaces.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

nb::object first_space(const nb::list& envs, const char* which) {
  if (envs.size() == 0) throw InvalidArgument("a worker needs at least one environment");
  return envs[0].attr(which);
}

void check_same_space(nb::handle env, nb::handle first, const char* which, int index,
                      int first_index) {
  nb::object space = env.attr(which);
  if (space.equal(first)) return;
  throw InvalidArgument(
      fmt::format("all environments need the same {}: environment {} has {}, environment {} has {}",
                  which, first_index, nb::cast<std::string>(nb::str(first)), index,
                  nb::cast<std::string>(nb::str(space))));
}

std::vector<std::byte> to_vector(nb::handle bytes_object) {
  const auto bytes = nb::cast<nb::bytes>(bytes_object);
  const auto* data = static_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

/// The tuple that `result` is or can be made of, if it has `size` elements.
nb::object tuple_of(nb::object result, Py_ssize_t size) {
  if (!PyTuple_Check(result.ptr())) {
    nb::object tuple = nb::steal(PySequence_Tuple(result.ptr()));
    if (!tuple) PyErr_Clear();
    result = std::move(tuple);
  }
  return result && PyTuple_GET_SIZE(result.ptr()) == size ? result : nb::object();
}

std::string what_it_is(nb::handle result) {
  std::string text = Py_TYPE(result.ptr())->tp_name;
  if (PyTuple_Check(result.ptr())) text += fmt::format(" of {}", PyTuple_GET_SIZE(result.ptr()));
  return text;
}

}  // namespace

PyStepper::PyStepper(nb::list envs, nb::object face, int first_env)
    : face_(std::move(face)),
      observations_(first_space(envs, "observation_space")),
      actions_(first_space(envs, "action_space")) {
  nb::object observation_space = envs[0].attr("observation_space");
  nb::object action_space = envs[0].attr("action_space");
  for (nb::handle env : envs) {
    const int index = first_env + count();
    check_same_space(env, observation_space, "observation_space", index, first_env);
    check_same_space(env, action_space, "action_space", index, first_env);
    envs_.push_back(Env{nb::borrow(env), {}, {}, {}});
  }
  bind_methods();
  hello_.observation_space = space_from_python(observation_space);
  hello_.action_space = space_from_python(action_space);
  hello_.extra = to_vector(face_.attr("hello")());
  reset_names_ = nb::make_tuple("seed", "options");
}

PyStepper::~PyStepper() {
  if (!nb::is_alive()) return;
  nb::gil_scoped_acquire gil;
  try {
    if (face_) face_.attr("close")();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("closing an environment");
  }
  release();
  reset_names_.reset();
  observations_ = {};
  actions_ = {};
}

void PyStepper::release() {
  // Moved out first: a destructor in Python may come back here.
  const auto envs = std::exchange(envs_, {});
  const auto infos = std::exchange(infos_, {});
  const nb::object face = std::move(face_);
  const nb::object encoded = std::move(encoded_infos_);
}

int PyStepper::traverse(visitproc visit, void* arg) const {
  Py_VISIT(face_.ptr());
  for (const Env& env : envs_) {
    Py_VISIT(env.env.ptr());
    Py_VISIT(env.step.ptr());
    Py_VISIT(env.reset.ptr());
  }
  for (const Info& info : infos_) Py_VISIT(info.info.ptr());
  return 0;
}

void PyStepper::bind_methods() {
  for (Env& env : envs_) {
    env.step = env.env.attr("step");
    env.reset = env.env.attr("reset");
  }
}

void PyStepper::attach(const vector::Rows& rows, int lo, vector::EnvMarker marker) {
  rows_ = rows;
  lo_ = lo;
  marker_ = marker;
  autoreset_ = vector::Autoreset(rows.autoreset_mode, count());
}

void PyStepper::reset() {
  nb::gil_scoped_acquire gil;
  infos_.clear();
  nb::object arguments = face_.attr("take_reset_arguments")();
  nb::object options = arguments.is_none() ? nb::none() : nb::object(arguments[0]);
  nb::object seeds = arguments.is_none() ? nb::none() : nb::object(arguments[1]);
  for (int i = 0; i < count(); ++i) {
    const auto row = static_cast<std::size_t>(lo_ + i);
    if (rows_.reset_mask[row] == 0) continue;
    Env& env = envs_[static_cast<std::size_t>(i)];
    env.last_seed.reset();
    if (rows_.has_seed[row] != 0) env.last_seed = rows_.seed[row];
    nb::object seed = !seeds.is_none() ? nb::object(seeds[i])
                      : env.last_seed  ? nb::object(nb::int_(*env.last_seed))
                                       : nb::none();
    nb::object result = guarded(i, "reset", [&] {
      PyObject* call[] = {nullptr, seed.ptr(), options.ptr()};
      return PyObject_Vectorcall(env.reset.ptr(), call + 1, PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 reset_names_.ptr());
    });
    take_reset_result(i, std::move(result));
    write_flags(lo_ + i, 0.0, false, false);
    autoreset_.was_reset(i);
  }
  leave();
}

void PyStepper::step() {
  nb::gil_scoped_acquire gil;
  infos_.clear();
  for (int i = 0; i < count(); ++i) {
    if (autoreset_.due(i)) {
      write_flags(lo_ + i, 0.0, false, false);
      autoreset_env(i);
    } else {
      step_env(i);
    }
  }
  leave();
}

void PyStepper::step_env(int i) {
  nb::object action = actions_.load(rows_.actions, lo_ + i);
  nb::object result = guarded(i, "step", [&] {
    PyObject* call[] = {nullptr, action.ptr()};
    return PyObject_Vectorcall(envs_[static_cast<std::size_t>(i)].step.ptr(), call + 1,
                               1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  });
  take_step_result(i, std::move(result));
}

void PyStepper::autoreset_env(int i) {
  nb::object result = guarded(i, "reset", [&] {
    return PyObject_CallNoArgs(envs_[static_cast<std::size_t>(i)].reset.ptr());
  });
  take_reset_result(i, std::move(result));
  rows_.reset[static_cast<std::size_t>(lo_ + i)] = 1;
  autoreset_.was_reset(i);
}

void PyStepper::take_reset_result(int i, nb::object result) {
  const int row = lo_ + i;
  nb::object tuple = tuple_of(result, 2);
  if (!tuple) {
    throw InvalidArgument(fmt::format("{} must return (observation, info), it returned {}",
                                      where(row, "reset"), what_it_is(result)));
  }
  store_observation(row, PyTuple_GET_ITEM(tuple.ptr(), 0), "reset");
  keep_info(row, false, PyTuple_GET_ITEM(tuple.ptr(), 1), "reset");
}

void PyStepper::take_step_result(int i, nb::object result) {
  const int row = lo_ + i;
  nb::object tuple = tuple_of(result, 5);
  if (!tuple) {
    throw InvalidArgument(fmt::format(
        "{} must return (observation, reward, terminated, truncated, info), it returned {}",
        where(row, "step"), what_it_is(result)));
  }
  PyObject* reward_object = PyTuple_GET_ITEM(tuple.ptr(), 1);
  const double reward = PyFloat_AsDouble(reward_object);
  const int terminated = PyObject_IsTrue(PyTuple_GET_ITEM(tuple.ptr(), 2));
  const int truncated = PyObject_IsTrue(PyTuple_GET_ITEM(tuple.ptr(), 3));
  if (PyErr_Occurred() != nullptr) {
    nb::python_error error;
    throw InvalidArgument(fmt::format(
        "{} returned a reward, terminated or truncated that is not a number or a truth value: {}",
        where(row, "step"), nb::cast<std::string>(nb::str(error.value()))));
  }
  store_observation(row, PyTuple_GET_ITEM(tuple.ptr(), 0), "step");
  write_flags(row, reward, terminated != 0, truncated != 0);
  PyObject* info = PyTuple_GET_ITEM(tuple.ptr(), 4);
  if (!autoreset_.ended(i, terminated != 0, truncated != 0)) {
    keep_info(row, false, info, "step");
    return;
  }
  keep_info(row, true, info, "step");
  keep_final(row);
  autoreset_env(i);
}

void PyStepper::write_flags(int row, double reward, bool terminated, bool truncated) {
  const auto r = static_cast<std::size_t>(row);
  rows_.reward[r] = reward;
  rows_.terminated[r] = terminated;
  rows_.truncated[r] = truncated;
  rows_.reset[r] = 0;
  rows_.has_final[r] = 0;
}

void PyStepper::keep_final(int row) {
  for (std::size_t leaf = 0; leaf < rows_.obs.size(); ++leaf) {
    std::memcpy(rows_.final_obs[leaf].row_data(row), rows_.obs[leaf].row_data(row),
                rows_.obs[leaf].row_bytes());
  }
  rows_.has_final[static_cast<std::size_t>(row)] = 1;
}

void PyStepper::keep_info(int row, bool is_final, PyObject* info, const char* method) {
  if (!PyDict_Check(info)) {
    throw InvalidArgument(fmt::format("{} must return a dict as info, it returned {}",
                                      where(row, method), what_it_is(info)));
  }
  if (PyDict_GET_SIZE(info) != 0) infos_.push_back({row, is_final, nb::borrow(info)});
}

void PyStepper::store_observation(int row, PyObject* observation, const char* method) {
  marker_.writing(row);
  try {
    observations_.store(observation, rows_.obs, row);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{} returned an observation that does not fit its space: {}",
                                      where(row, method), error.what()));
  }
}

/// Calls into an environment's code. What it raises gets a note that says where it happened.
template <class Call>
nb::object PyStepper::guarded(int i, const char* method, Call call) {
  enter(lo_ + i, method);
  PyObject* result = call();
  if (result != nullptr) [[likely]]
    return nb::steal(result);
  nb::python_error error;
  const int row = lo_ + i;
  std::string note = where(row, method);
  if (std::strcmp(method, "step") == 0) note += ", action " + action_text(row);
  if (const auto& seed = envs_[static_cast<std::size_t>(i)].last_seed)
    note += fmt::format(", last seed {}", *seed);
  add_note(error.value(), note);
  throw error;
}

/// The code of the environment of `row` runs from here on.
void PyStepper::enter(int row, const char* method) {
  row_ = row;
  method_ = method;
  marker_.at(row);
}

/// No environment can be blamed from here on.
void PyStepper::leave() {
  row_ = -1;
  marker_.none();
}

std::string PyStepper::where(int row, const char* method) const {
  return fmt::format("environment {}: {}()", row, method);
}

std::string PyStepper::action_text(int row) const {
  return nb::cast<std::string>(nb::repr(actions_.load(rows_.actions, row)));
}

nb::object PyStepper::infos() const {
  if (infos_.empty()) return nb::none();
  nb::list entries;
  for (const Info& info : infos_)
    entries.append(nb::make_tuple(info.row, info.is_final, info.info));
  return entries;
}

std::span<const std::byte> PyStepper::info() {
  if (infos_.empty()) return {};
  nb::gil_scoped_acquire gil;
  encoded_infos_ = face_.attr("encode_infos")(infos());
  const auto bytes = nb::cast<nb::bytes>(encoded_infos_);
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> PyStepper::request(std::span<const std::byte> message) {
  nb::gil_scoped_acquire gil;
  leave();
  auto reply = to_vector(face_.attr("request")(nb::bytes(message.data(), message.size())));
  bind_methods();  // the request may have put other methods in place
  return reply;
}

process::ErrorReport PyStepper::describe_exception() const {
  nb::gil_scoped_acquire gil;
  process::ErrorReport report = report_current_exception();
  if (row_ < 0) return report;
  report.env_index = row_;
  report.last_seed = envs_[static_cast<std::size_t>(row_ - lo_)].last_seed;
  if (std::strcmp(method_, "step") == 0) report.last_action = action_text(row_);
  return report;
}

}  // namespace shoal::python
