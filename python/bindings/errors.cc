// C++ exceptions become the Python exceptions that a Python programmer expects. The classes are in
// shoal/errors.py.
#include "shoal/serve/errors.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "bytes.h"
#include "exceptions.h"
#include "shoal/group/connection/connection_lost.h"
#include "shoal/group/peer_lost.h"
#include "shoal/os/error.h"
#include "shoal/process/error_report.h"
#include "shoal/process/start_method.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/async_errors.h"
#include "shoal/vector/spaces_differ.h"
#include "vector/faults.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

nb::object python_errors() { return nb::module_::import_("shoal.errors"); }

nb::object gymnasium_error(const char* name) {
  return nb::module_::import_("gymnasium.error").attr(name);
}

void raise(nb::handle type, const std::exception& error) {
  PyErr_SetObject(type.ptr(), foreign_text(error.what()).ptr());
}

void raise(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

std::string where(const process::ErrorReport& report) {
  if (report.env_index < 0) return "";
  std::string text = fmt::format("environment {}", report.env_index);
  if (report.episode_step >= 0) {
    text += fmt::format(", step {} of its episode", std::int64_t{report.episode_step} + 1);
  }
  if (!report.last_action.empty()) text += ", action " + report.last_action;
  if (report.last_seed) text += fmt::format(", last seed {}", *report.last_seed);
  return text;
}

nb::object exception_of(const process::RemoteError& error) {
  const process::ErrorReport& report = error.report();
  nb::list others;
  for (const process::RemoteError& other : error.others()) others.append(exception_of(other));
  return nb::module_::import_("shoal.process.error_report")
      .attr("unpack_exception")(error.worker(), report.type, report.message, report.traceback,
                                to_bytes(report.extra), where(report), report.code,
                                report.env_index, others);
}

nb::object exception_of(const process::WorkerDied& error) {
  const process::DeathCertificate& end = error.certificate();
  nb::object exitcode = nb::none();
  if (end.status.known)
    exitcode = nb::int_(end.status.signal != 0 ? -end.status.signal : end.status.code);
  nb::object env_indices =
      nb::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "ii",
                                      end.first_env, end.first_env + end.num_envs));
  return python_errors().attr("WorkerDied")(
      foreign_text(error.what()), "worker"_a = end.worker, "index"_a = end.index,
      "env_indices"_a = env_indices, "pid"_a = end.pid, "exitcode"_a = exitcode,
      "log_tail"_a = nb::tuple(foreign_texts(end.log_tail)), "kind"_a = end.kind);
}

nb::object exception_of(const group::PeerLost& error) {
  const group::Member& member = error.member();
  return python_errors().attr("PeerLost")(error.what(), "rank"_a = member.rank,
                                          "host"_a = member.host, "pid"_a = member.pid);
}

nb::object exception_of(const group::ConnectionLost& error) {
  const group::Member& member = error.member();
  return python_errors().attr("ConnectionLost")(error.what(), "host"_a = member.host,
                                                "pid"_a = member.pid);
}

nb::object exception_of(const vector::TooManyFaults& error) {
  nb::list faults;
  for (const vector::Fault& fault : error.faults()) faults.append(fault_to_python(*fault));
  return python_errors().attr("TooManyFaults")(error.what(), "faults"_a = nb::tuple(faults));
}

void set_python_error(const std::exception_ptr& pending) {
  try {
    std::rethrow_exception(pending);
  } catch (const vector::SpacesDiffer& error) {
    raise(python_errors().attr("SpacesDiffer"), error);
  } catch (const serve::DeadlineExceeded& error) {
    raise(python_errors().attr("DeadlineExceeded"), error);
  } catch (const serve::OverCapacity& error) {
    raise(python_errors().attr("OverCapacity"), error);
  } catch (const serve::Cancelled& error) {
    raise(python_errors().attr("Cancelled"), error);
  } catch (const serve::ServiceDied& error) {
    raise(python_errors().attr("ServiceDied"), error);
  } catch (const serve::ModelError& error) {
    raise(python_errors().attr("ModelError")(foreign_text(error.what()),
                                             "traceback"_a = foreign_text(error.traceback())));
  } catch (const InvalidArgument& error) {
    raise(PyExc_ValueError, error);
  } catch (const TimedOut& error) {
    raise(PyExc_TimeoutError, error);
  } catch (const SystemError& error) {
    nb::object arguments = nb::make_tuple(error.error_number(), foreign_text(error.what()));
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
  } catch (const process::RemoteError& error) {
    raise(exception_of(error));
  } catch (const process::WorkerDied& error) {
    raise(exception_of(error));
  } catch (const group::PeerLost& error) {
    raise(exception_of(error));
  } catch (const group::ConnectionLost& error) {
    raise(exception_of(error));
  } catch (const vector::TooManyFaults& error) {
    raise(exception_of(error));
  } catch (const process::StartFailed& error) {
    raise(python_errors().attr("StartFailed"), error);
  } catch (const process::ForkRefused& error) {
    raise(python_errors().attr("ForkRefused"), error);
  } catch (const vector::AlreadyInFlight& error) {
    raise(gymnasium_error("AlreadyPendingCallError")(error.what(), "send"));
  } catch (const vector::NothingInFlight& error) {
    raise(gymnasium_error("NoAsyncCallError")(error.what(), "recv"));
  } catch (const vector::NotReset& error) {
    raise(gymnasium_error("ResetNeeded"), error);
  } catch (const InvalidState& error) {
    raise(PyExc_RuntimeError, error);
  } catch (const Error& error) {
    raise(python_errors().attr("Error"), error);
  }
}

void translate(const std::exception_ptr& pending, void*) {
  try {
    set_python_error(pending);
  } catch (nb::python_error& error) {  // while making the exception
    error.restore();
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace shoal::python
