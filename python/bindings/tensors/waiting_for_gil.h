// What is let go of on a thread without the GIL, and needs it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace shoal::python {

/// Weak references on storages, and Python objects, until somebody with the GIL lets go of them: the
/// next call that sends or receives a tensor, or, where it is urgent or they are many, the main
/// thread when it runs Python next.
///
/// Threads: any.
/// Fork: a child has what waited, whichever thread was at it.
class WaitingForGil {
 public:
  static void free_weak(std::uintptr_t weak) noexcept;
  static void decref_some_time(PyObject* object) noexcept;  // a small one
  static void decref_soon(PyObject* object) noexcept;

  /// Lets go of what waits. Costs a load where nothing does. Needs the GIL.
  static void let_go();
};

}  // namespace shoal::python
