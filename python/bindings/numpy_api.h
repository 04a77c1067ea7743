// NumPy's C interface, loaded when it is first needed: importing shoal._core does not import NumPy.
#pragma once

#include <nanobind/nanobind.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL shoal_core_numpy_api
#ifndef SHOAL_NUMPY_API_HERE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include "shoal/shm/tensor.h"

namespace shoal::python {

/// Imports NumPy; must have returned before any PyArray_ call of any file. Cheap when it has. Needs
/// the GIL.
void ensure_numpy();

/// NumPy's type number of `dtype`, in native byte order.
int type_num(shm::DType dtype);

/// The DType of a NumPy dtype object. Throws InvalidArgument naming it when Shoal has no such type.
shm::DType dtype_of(nanobind::handle numpy_dtype);

/// A fresh, uninitialised C-contiguous array. The shape is `rows` (where there is a batch) and then
/// `row.shape`.
nanobind::object new_array(const shm::TensorSpec& row, std::int64_t rows);
nanobind::object new_array(const shm::TensorSpec& spec);

/// An array over memory that `owner` keeps alive.
nanobind::object array_view(const shm::TensorView& view, nanobind::handle owner, bool writeable);

inline void* array_data(nanobind::handle array) {
  return PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr()));
}

}  // namespace shoal::python
