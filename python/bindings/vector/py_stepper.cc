#include "vector/py_stepper.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bytes.h"
#include "exceptions.h"
#include "process/gpu_guard.h"
#include "shoal/os/error.h"
#include "shoal/trace/ticks.h"
#include "shoal/vector/native/engine_request.h"
#include "shoal/vector/spaces_differ.h"
#include "vector/deep_copy.h"
#include "vector/spaces.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

nb::object first_space(const nb::list& envs, const char* which) {
  if (envs.size() == 0) throw InvalidArgument("a worker needs at least one environment");
  return envs[0].attr(which);
}

[[noreturn]] void throw_spaces_differ(nb::handle first, nb::handle other, const char* which,
                                      int index, int first_index) {
  throw vector::SpacesDiffer(
      fmt::format("all environments need the same {}: environment {} has {}, environment {} has {}",
                  which, first_index, nb::cast<std::string>(nb::str(first)), index,
                  nb::cast<std::string>(nb::str(other))));
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

PyStepper::PyStepper(nb::list envs, nb::object face, int first_env, bool same_observations,
                     bool exact)
    : face_(std::move(face)),
      observations_(first_space(envs, "observation_space")),
      actions_(first_space(envs, "action_space")),
      exact_(exact) {
  for (nb::handle env : envs) {
    envs_.push_back(Env{.env = nb::borrow(env), .step = {}, .reset = {}, .last_seed = {}});
  }
  hello_.observation_space = space_from_python(first_space(envs, "observation_space"));
  hello_.action_space = space_from_python(first_space(envs, "action_space"));
  if (!same_observations) hello_.observation_space = layout_of(hello_.observation_space);
  check_spaces(first_env, same_observations);
  if (first_env == 0) first_env_ = identity_.place().first_env;
  take_episode_options();
  bind_methods();
  hello_.extra = to_vector(face_.attr("hello")());
  reset_names_ = nb::make_tuple("seed", "options");
}

PyStepper::~PyStepper() {
  if (!nb::is_alive()) return;
  nb::gil_scoped_acquire gil;
  try {
    if (face_) tell_close_failures(face_.attr("close")());
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("closing an environment");
  }
  release();
  reset_names_.reset();
  observations_ = {};
  actions_ = {};
}

void PyStepper::check_spaces(int first_env, bool same_observations) {
  const nb::object observations = envs_[0].env.attr("observation_space");
  const nb::object actions = envs_[0].env.attr("action_space");
  for (int i = 1; i < count(); ++i) {
    const nb::handle env = envs_[static_cast<std::size_t>(i)].env;
    const nb::object observed = env.attr("observation_space");
    const nb::object acted = env.attr("action_space");
    if (same_observations ? !same_space(observations, observed)
                          : layout_of(space_from_python(observed)) != hello_.observation_space) {
      throw_spaces_differ(observations, observed, "observation_space", first_env + i, first_env);
    }
    if (!same_space(actions, acted))
      throw_spaces_differ(actions, acted, "action_space", first_env + i, first_env);
  }
}

void PyStepper::release() {
  // Moved out first: a destructor in Python may come back here.
  const auto envs = std::exchange(envs_, {});
  const auto infos = std::exchange(infos_, {});
  const auto observed = std::exchange(observed_, {});
  const auto finals = std::exchange(finals_, {});
  const auto taken = std::exchange(taken_, {});
  const nb::object face = std::move(face_);
  const nb::object encoded = std::move(encoded_infos_);
  const nb::object whole = std::move(whole_);
  const nb::object sent_whole = std::move(sent_whole_);
  const nb::object options = std::move(reset_options_);
  const nb::object seeds = std::move(reset_seeds_);
}

int PyStepper::traverse(visitproc visit, void* arg) const {
  Py_VISIT(face_.ptr());
  for (const Env& env : envs_) {
    Py_VISIT(env.env.ptr());
    Py_VISIT(env.step.ptr());
    Py_VISIT(env.reset.ptr());
  }
  for (const Info& info : infos_) Py_VISIT(info.info.ptr());
  Py_VISIT(whole_.ptr());
  Py_VISIT(sent_whole_.ptr());
  Py_VISIT(reset_options_.ptr());
  Py_VISIT(reset_seeds_.ptr());
  for (const ObjectRows* rows : {&observed_, &finals_, &taken_}) {
    if (const int stop = rows->traverse(visit, arg)) return stop;
  }
  return 0;
}

void PyStepper::bind_methods() {
  for (Env& env : envs_) {
    if (env.env) bind_methods(env);  // else it is discarded
  }
}

void PyStepper::bind_methods(Env& env) {
  env.step = env.env.attr("step");
  env.reset = env.env.attr("reset");
}

void PyStepper::face_has_changed() {
  bind_methods();
  nb::object actions = face_.attr("take_whole_actions")();
  if (!actions.is_none()) sent_whole_ = std::move(actions);
}

void PyStepper::attach(const vector::Rows& rows, int lo, vector::EnvMarker marker) {
  rows_ = rows;
  lo_ = lo;
  marker_ = marker;
  autoreset_ = vector::Autoreset(rows.autoreset_mode, count());
  episodes_ = vector::Episodes(options_, rows, lo, count());
  if (observations_.objects() + actions_.objects() == 0 && !exact_) return;
  const nb::gil_scoped_acquire gil;
  observed_ = ObjectRows(observations_.objects(), count());
  finals_ = ObjectRows(exact_ ? 1 : observations_.objects(), count());
  taken_ = ObjectRows(actions_.objects(), count());
}

void PyStepper::begin() {
  infos_.clear();
  changed_.clear();
}

void PyStepper::begin_reset() {
  nb::gil_scoped_acquire gil;
  begin();
  sent_whole_.reset();
  nb::object arguments = face_.attr("take_reset_arguments")();
  reset_options_ = arguments.is_none() ? nb::none() : nb::object(arguments[0]);
  reset_seeds_ = arguments.is_none() ? nb::none() : nb::object(arguments[1]);
}

void PyStepper::begin_step() {
  nb::gil_scoped_acquire gil;
  begin();
  if (actions_.objects() != 0) take_actions();
  if (whole_ || sent_whole_) whole_ = std::exchange(sent_whole_, {});
  if (!reset_options_) return;
  reset_options_.reset();
  reset_seeds_.reset();
}

void PyStepper::reset_range(int lo, int hi) {
  nb::gil_scoped_acquire gil;
  const process::IdentityScope scope(identity_);
  const nb::object of_all = reset_options_ ? reset_options_ : nb::none();
  const nb::object seeds = reset_seeds_ ? reset_seeds_ : nb::none();
  for (int i = lo; i < hi; ++i) {
    const auto row = static_cast<std::size_t>(lo_ + i);
    if (rows_.reset_mask[row] == 0) continue;
    Env& env = envs_[static_cast<std::size_t>(i)];
    env.last_seed.reset();
    if (rows_.has_seed[row] != 0) env.last_seed = rows_.seed[row];
    nb::object options = of_all;
    nb::object seed = !seeds.is_none() ? nb::object(seeds[i]) : nb::none();
    if (const nb::object its = face_.attr("take_own_reset_arguments")(i); !its.is_none()) {
      options = its[0];
      seed = its[1];
    }
    if (seed.is_none() && env.last_seed) seed = nb::int_(*env.last_seed);
    if (!seed.is_none()) {
      std::uint64_t value;
      const bool fits = nb::try_cast(seed, value);
      identity_.set_seed(first_env_ + lo_ + i, fits ? std::optional(value) : std::nullopt);
    }
    nb::object result = guarded(i, "reset", [&] {
      // One for each: who takes something out of it takes it from no other.
      nb::object own = options;
      if (PyDict_CheckExact(options.ptr())) own = nb::steal(PyDict_Copy(options.ptr()));
      if (!own) throw nb::python_error();
      PyObject* call[] = {nullptr, seed.ptr(), own.ptr()};
      return PyObject_Vectorcall(env.reset.ptr(), call + 1, PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 reset_names_.ptr());
    });
    take_reset_result(i, std::move(result));
    write_flags(lo_ + i, 0.0, false, false);
    autoreset_.was_reset(i);
  }
  leave();
  check_gpu_now_and_then();
}

void PyStepper::step_range(int lo, int hi) {
  nb::gil_scoped_acquire gil;
  const process::IdentityScope scope(identity_);
  for (int i = lo; i < hi; ++i) {
    if (autoreset_.due(i)) {
      write_flags(lo_ + i, 0.0, false, false);
      autoreset_env(i);
    } else {
      step_env(i);
    }
  }
  leave();
  check_gpu_now_and_then();
}

/// Those that the caller sent, where it is in another process.
void PyStepper::take_actions() {
  const nb::object sent = face_.attr("take_actions")();
  if (sent.is_none()) return;
  for (int i = 0; i < count(); ++i) {
    const nb::object own = sent[i];
    if (!own.is_none()) taken_.set_row(i, own);
  }
}

nb::object PyStepper::action_of(int i) const {
  if (whole_) return whole_[i];
  return actions_.load(rows_.actions, lo_ + i, &taken_, i);
}

void PyStepper::step_env(int i) {
  nb::object action = action_of(i);
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
  envs_[static_cast<std::size_t>(i)].steps = 0;
  nb::object tuple = tuple_of(result, 2);
  if (!tuple) {
    throw InvalidArgument(fmt::format("{} must return (observation, info), it returned {}",
                                      where(row, "reset"), what_it_is(result)));
  }
  store_observation(row, PyTuple_GET_ITEM(tuple.ptr(), 0), "reset");
  episodes_.begin(i);
  keep_info(row, false, PyTuple_GET_ITEM(tuple.ptr(), 1), "reset");
}

void PyStepper::take_step_result(int i, nb::object result) {
  const int row = lo_ + i;
  nb::object tuple = tuple_of(result, 5);
  if (!tuple) {
    throw InvalidArgument(fmt::format(
        "{} must return (observation, reward, terminated, truncated, info), it returned {}{}",
        where(row, "step"), what_it_is(result),
        tuple_of(result, 4) ? ": those of old gym, whose done is two values in Gymnasium" : ""));
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
  episodes_.stepped(i, i + 1);
  const bool cut = rows_.truncated[static_cast<std::size_t>(row)] != 0;
  PyObject* info = PyTuple_GET_ITEM(tuple.ptr(), 4);
  const bool ended = autoreset_.ended(i, terminated != 0, cut);
  keep_info(row, ended, info, "step");
  ++envs_[static_cast<std::size_t>(i)].steps;
  if (!ended) return;
  keep_final(row, PyTuple_GET_ITEM(tuple.ptr(), 0));
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

void PyStepper::keep_final(int row, PyObject* observation) {
  for (std::size_t leaf = 0; leaf < rows_.obs.size(); ++leaf) {
    std::memcpy(rows_.final_obs[leaf].row_data(row), rows_.obs[leaf].row_data(row),
                rows_.obs[leaf].row_bytes());
  }
  rows_.has_final[static_cast<std::size_t>(row)] = 1;
  const int i = row - lo_;
  // Copied, because the environment's reset may change them.
  if (exact_) {
    finals_.set(0, i, deep_copy(observation));
    changed_.push_back(row);
  } else if (observations_.objects() != 0) {
    finals_.set_row(i, deep_copy(observed_.row(i)));
  }
}

void PyStepper::keep_info(int row, bool is_final, PyObject* info, const char* method) {
  if (!PyDict_Check(info)) {
    throw InvalidArgument(fmt::format("{} must return a dict as info, it returned {}",
                                      where(row, method), what_it_is(info)));
  }
  if (PyDict_GET_SIZE(info) != 0) infos_.push_back({row, is_final, nb::borrow(info)});
}

// Before any environment's code runs again: it may change what it or another one returned, and
// which environments share a process must not show.
void PyStepper::own_what_was_kept() {
  if (!infos_.empty() && !infos_.back().own) {
    Info& last = infos_.back();
    last.info = deep_copy(last.info);
    last.own = true;
  }
  if (loose_row_ >= 0) {
    const int i = std::exchange(loose_row_, -1) - lo_;
    observed_.set_row(i, deep_copy(observed_.row(i)));
  }
}

void PyStepper::store_observation(int row, PyObject* observation, const char* method) {
  marker_.writing(row);
  try {
    if (frames_.active()) {
      store_frame(row, observation, method);
      return;
    }
    observations_.store(observation, rows_.obs, row, &observed_, row - lo_);
    if (observations_.objects() != 0) {
      changed_.push_back(row);
      loose_row_ = row;
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{} returned an observation that does not fit its space: {}",
                                      where(row, method), error.what()));
  }
}

/// Calls into an environment's code. What it raises gets a note that says where it happened.
template <class Call>
nb::object PyStepper::guarded(int i, const char* method, Call call) {
  enter(lo_ + i, method);
  PyObject* result = [&] {
    const trace::TickScope scope(method[0] == 'r' ? trace::Span::kEnvReset : trace::Span::kEnvStep,
                                 static_cast<std::uint64_t>(lo_ + i));
    return call();
  }();
  if (result != nullptr) [[likely]]
    return nb::steal(result);
  nb::python_error error;
  const int row = lo_ + i;
  std::string note = where(row, method);
  const Env& env = envs_[static_cast<std::size_t>(i)];
  if (std::strcmp(method, "step") == 0) {
    note += fmt::format(", step {} of its episode, action {}", env.steps + 1, action_text(row));
  }
  if (env.last_seed) note += fmt::format(", last seed {}", *env.last_seed);
  add_note(error.value(), note);
  throw error;
}

/// The code of the environment of `row` runs from here on.
void PyStepper::enter(int row, const char* method) {
  own_what_was_kept();
  row_ = row;
  method_ = method;
  identity_.enter(first_env_ + row);
  if (method[0] == 'r') {
    marker_.resetting(row);
  } else {
    marker_.at(row);
  }
}

/// No environment can be blamed from here on.
void PyStepper::leave() {
  row_ = -1;
  identity_.leave();
  marker_.none();
}

std::string PyStepper::where(int row, const char* method) const {
  return fmt::format("environment {}: {}()", row, method);
}

std::string PyStepper::action_text(int row) const {
  return nb::cast<std::string>(nb::repr(action_of(row - lo_)));
}

nb::object PyStepper::infos() {
  own_what_was_kept();
  return info_entries();
}

nb::object PyStepper::info_entries() const {
  if (infos_.empty()) return nb::none();
  nb::list entries;
  for (const Info& info : infos_)
    entries.append(nb::make_tuple(info.row, info.is_final, info.info));
  return entries;
}

std::span<const std::byte> PyStepper::info() {
  if (infos_.empty() && changed_.empty()) return {};
  nb::gil_scoped_acquire gil;
  nb::list observed, finals;
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (const int row : changed_) {
    if (observations_.objects() != 0)
      observed.append(nb::make_tuple(row, observed_.row(row - lo_)));
    if (rows_.has_final[static_cast<std::size_t>(row)] != 0)
      finals.append(nb::make_tuple(row, finals_.row(row - lo_)));
  }
  encoded_infos_ = face_.attr("encode")(info_entries(), observed, finals);
  return view(nb::cast<nb::bytes>(encoded_infos_));
}

std::vector<std::byte> PyStepper::request(std::span<const std::byte> message) {
  if (auto answer = answer_engine_request(*this, message)) return std::move(*answer);
  nb::gil_scoped_acquire gil;
  leave();
  auto reply = to_vector(face_.attr("request")(to_bytes(message)));
  face_has_changed();
  return reply;
}

process::ErrorReport PyStepper::describe_exception() const {
  nb::gil_scoped_acquire gil;
  process::ErrorReport report = report_current_exception();
  if (row_ < 0) return report;
  const Env& env = envs_[static_cast<std::size_t>(row_ - lo_)];
  report.env_index = row_;
  report.last_seed = env.last_seed;
  if (std::strcmp(method_, "step") == 0) {
    report.episode_step = env.steps;
    report.last_action = action_text(row_);
  }
  return report;
}

bool PyStepper::is_interrupt(const std::exception_ptr& thrown) const {
  try {
    std::rethrow_exception(thrown);
  } catch (const nb::python_error& error) {
    const nb::gil_scoped_acquire gil;
    return !error.matches(PyExc_Exception);  // KeyboardInterrupt, SystemExit
  } catch (...) {
    return false;
  }
}

bool PyStepper::can_rebuild() const {
  nb::gil_scoped_acquire gil;
  return nb::cast<bool>(face_.attr("can_rebuild")());
}

void PyStepper::discard(int i) {
  nb::gil_scoped_acquire gil;
  std::erase_if(infos_, [row = lo_ + i](const Info& info) { return info.row == row; });
  std::erase(changed_, lo_ + i);
  Env& env = envs_[static_cast<std::size_t>(i)];
  const Env gone = std::exchange(env, Env{.env = {}, .step = {}, .reset = {}, .last_seed = {}});
  face_.attr("discard")(i);
}

void PyStepper::rebuild(int i) {
  nb::gil_scoped_acquire gil;
  enter(lo_ + i, "rebuild");
  Env& env = envs_[static_cast<std::size_t>(i)];
  if (env.env) discard(i);
  env.env = nb::object(face_.attr("rebuild")(i));
  bind_methods(env);
  autoreset_.was_reset(i);
}

std::vector<process::ErrorReport> PyStepper::close() {
  nb::gil_scoped_acquire gil;
  leave();
  std::vector<process::ErrorReport> reports;
  const nb::object failures = face_.attr("close")();
  for (nb::handle failure : failures) {
    process::ErrorReport& report = reports.emplace_back(report_exception(failure[1]));
    if (!failure[0].is_none()) report.env_index = nb::cast<int>(failure[0]);
  }
  return reports;
}

std::vector<std::byte> PyStepper::hand_over() {
  nb::gil_scoped_acquire gil;
  leave();
  return to_vector(face_.attr("hand_over")());
}

void PyStepper::take_over(std::span<const std::byte> handed) {
  nb::gil_scoped_acquire gil;
  face_.attr("take_over")(to_bytes(handed));
  autoreset_.set_all_due();
}

}  // namespace shoal::python
