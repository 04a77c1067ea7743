// Copies of what an environment hands out and may go on changing.
#pragma once

#include <nanobind/nanobind.h>

namespace shoal::python {

/// A copy of `object` that shares nothing with it that could change, but for parts that Python
/// cannot copy (locks, generators, open files): those stay the same objects. Containers and arrays
/// are copied here, all else by copy.deepcopy().
///
/// Exceptions of a part's own code are taken as "cannot be copied"; what is no Exception
/// (KeyboardInterrupt) leaves as python_error.
nanobind::object deep_copy(nanobind::handle object);

}  // namespace shoal::python
