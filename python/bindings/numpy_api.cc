#define SHOAL_NUMPY_API_HERE
#include "numpy_api.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <vector>

#include "shoal/os/error.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

std::vector<npy_intp> dimensions(const shm::TensorSpec& spec) {
  return {spec.shape.begin(), spec.shape.end()};
}

std::vector<npy_intp> batched_dimensions(const shm::TensorSpec& row, std::int64_t rows) {
  std::vector<npy_intp> dims{static_cast<npy_intp>(rows)};
  dims.insert(dims.end(), row.shape.begin(), row.shape.end());
  return dims;
}

nb::object checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

nb::object new_array(shm::DType dtype, std::vector<npy_intp> dims) {
  return checked(PyArray_SimpleNew(static_cast<int>(dims.size()), dims.data(), type_num(dtype)));
}

}  // namespace

void ensure_numpy() {
  if (PyArray_API == nullptr && _import_array() < 0) throw nb::python_error();
}

int type_num(shm::DType dtype) {
  using enum shm::DType;
  switch (dtype) {
    case kBool:
      return NPY_BOOL;
    case kU8:
      return NPY_UINT8;
    case kI8:
      return NPY_INT8;
    case kU16:
      return NPY_UINT16;
    case kI16:
      return NPY_INT16;
    case kU32:
      return NPY_UINT32;
    case kI32:
      return NPY_INT32;
    case kU64:
      return NPY_UINT64;
    case kI64:
      return NPY_INT64;
    case kF16:
      return NPY_FLOAT16;
    case kF32:
      return NPY_FLOAT32;
    case kF64:
      return NPY_FLOAT64;
  }
  SHOAL_CHECK(false, "every DType has a NumPy type");
}

shm::DType dtype_of(nb::handle numpy_dtype) {
  const std::string name = nb::cast<std::string>(nb::str(numpy_dtype.attr("name")));
  if (!nb::cast<bool>(numpy_dtype.attr("isnative"))) {
    throw InvalidArgument(fmt::format("dtype {} is not in this machine's byte order", name));
  }
  return shm::dtype_from_name(name);
}

nb::object new_array(const shm::TensorSpec& row, std::int64_t rows) {
  return new_array(row.dtype, batched_dimensions(row, rows));
}

nb::object new_array(const shm::TensorSpec& spec) {
  return new_array(spec.dtype, dimensions(spec));
}

nb::object array_view(const shm::TensorView& view, nb::handle owner, bool writeable) {
  auto dims = batched_dimensions(view.row, view.rows);
  const int flags = NPY_ARRAY_CARRAY_RO | (writeable ? NPY_ARRAY_WRITEABLE : 0);
  nb::object array =
      checked(PyArray_New(&PyArray_Type, static_cast<int>(dims.size()), dims.data(),
                          type_num(view.row.dtype), nullptr, view.data, 0, flags, nullptr));
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()),
                            nb::borrow(owner).release().ptr()) < 0) {
    throw nb::python_error();
  }
  return array;
}

}  // namespace shoal::python
