#include "exceptions.h"

#include <nanobind/stl/string.h>

#include <tuple>

namespace nb = nanobind;

namespace shoal::python {
namespace {

std::string text(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

}  // namespace

process::ErrorReport report_exception(nb::handle exception) {
  process::ErrorReport report;
  const nb::object packed =
      nb::module_::import_("shoal.process.error_report").attr("pack_exception")(exception);
  report.type = text(packed[0]);
  report.message = text(packed[1]);
  report.traceback = text(packed[2]);
  const auto pickled = nb::cast<nb::bytes>(packed[3]);
  const auto* data = static_cast<const std::byte*>(pickled.data());
  report.extra.assign(data, data + pickled.size());
  return report;
}

process::ErrorReport report_current_exception() {
  nb::gil_scoped_acquire gil;
  try {
    throw;
  } catch (const nb::python_error& error) {
    return report_exception(error.value());
  } catch (...) {
    return process::ErrorReport::from_current_exception();
  }
}

void tell_close_failures(nb::handle failures) {
  for (nb::handle failure : failures) {
    const nb::object error = failure[1];
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    PyErr_WriteUnraisable(nb::str("closing an environment").ptr());
  }
}

void add_note(nb::handle exception, const std::string& note) {
  if (nb::hasattr(exception, "add_note")) exception.attr("add_note")(note);
}

}  // namespace shoal::python
