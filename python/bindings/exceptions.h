// Exceptions on their way between Python, C++ and other processes.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "shoal/process/error_report.h"

namespace shoal::python {

/// Of the exception that is being handled (inside a catch block): for one raised by Python code
/// with its formatted traceback and, where it survives pickling, the exception itself. Takes the
/// GIL.
process::ErrorReport report_current_exception();

/// The same of an exception that was caught in Python. Needs the GIL.
process::ErrorReport report_exception(nanobind::handle exception);

/// What a face's close() returned (py_stepper.h) where nobody asked for it, as Python tells what it
/// cannot raise.
void tell_close_failures(nanobind::handle failures);

/// exception.add_note(note), where this Python has it (3.11).
void add_note(nanobind::handle exception, const std::string& note);

}  // namespace shoal::python
