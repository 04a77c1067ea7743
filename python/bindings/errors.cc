// C++ exceptions become the Python exceptions that a Python programmer expects.
#include "bindings.h"
#include "shoal/os/error.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

void raise(PyObject* type, const std::exception& error) { PyErr_SetString(type, error.what()); }

void translate(const std::exception_ptr& pending, void*) {
  try {
    std::rethrow_exception(pending);
  } catch (const InvalidArgument& error) {
    raise(PyExc_ValueError, error);
  } catch (const TimedOut& error) {
    raise(PyExc_TimeoutError, error);
  } catch (const SystemError& error) {
    nb::object arguments = nb::make_tuple(error.error_number(), error.what());
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
  } catch (const Error& error) {
    raise(PyExc_RuntimeError, error);
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace shoal::python
