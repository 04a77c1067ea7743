#include "tensors/tensor_form.h"

#include <algorithm>

#include "tensors/calls.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

/// By torch's table of functions. False where it does not know, which says nothing of the tensor.
bool read_at_once(const dlpack::ExchangeApi& api, nb::handle object, TensorForm& form,
                  std::byte*& first) {
  dlpack::Tensor tensor;
  if (api.tensor_of(object.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  const int dtype = TorchApi::dtype_of(tensor.dtype);
  const bool on_cpu = tensor.device.type == dlpack::DeviceType::kCpu;
  if (dtype < 0 || tensor.dims > static_cast<std::int32_t>(kMaxDims) ||
      !(on_cpu || tensor.device.type == dlpack::DeviceType::kCuda)) {
    return false;
  }
  form.device = {tensor.device.type, on_cpu ? 0 : tensor.device.index};
  form.dtype = static_cast<std::uint8_t>(dtype);
  form.dims = static_cast<std::uint8_t>(tensor.dims);
  std::copy_n(tensor.sizes, form.dims, form.sizes.begin());
  std::copy_n(tensor.strides, form.dims, form.strides.begin());
  first = static_cast<std::byte*>(tensor.data);
  if (first != nullptr) first += tensor.byte_offset;
  return true;
}

/// Whether all of them are integers; those of a tensor that is traced are not.
bool read_ints(nb::handle tuple, std::array<std::int64_t, kMaxDims>& to) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple.ptr());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(tuple.ptr(), i);
    if (!PyLong_CheckExact(item)) return false;
    to[static_cast<std::size_t>(i)] = PyLong_AsLongLong(item);
  }
  return true;
}

bool is_dense(nb::handle object) {
  return attribute<"layout">(object).is(TorchApi::here().strided()) &&
         !is_true<"is_nested">(object);
}

bool read_by_attributes(nb::handle object, TensorForm& form, std::byte*& first) {
  if (!is_dense(object)) return false;
  const bool on_cpu = is_true<"is_cpu">(object);
  if (!on_cpu && !is_true<"is_cuda">(object)) return false;
  const int dtype = TorchApi::here().dtype_of(attribute<"dtype">(object));
  if (dtype < 0) return false;
  const nb::object sizes = attribute<"shape">(object);
  const nb::object strides = call<"stride">(object);
  if (!PyTuple_Check(sizes.ptr()) || !PyTuple_Check(strides.ptr()) ||
      PyTuple_GET_SIZE(sizes.ptr()) > static_cast<Py_ssize_t>(kMaxDims) ||
      PyTuple_GET_SIZE(sizes.ptr()) != PyTuple_GET_SIZE(strides.ptr()) ||
      !read_ints(sizes, form.sizes) || !read_ints(strides, form.strides)) {
    return false;
  }
  if (on_cpu) {
    form.device = {};
  } else {
    form.device.type = dlpack::DeviceType::kCuda;
    form.device.index = static_cast<std::int32_t>(to_int(call<"get_device">(object)));
  }
  form.dtype = static_cast<std::uint8_t>(dtype);
  form.dims = static_cast<std::uint8_t>(PyTuple_GET_SIZE(sizes.ptr()));
  PyObject* const address = PyObject_CallMethodNoArgs(object.ptr(), interned<"data_ptr">());
  if (address == nullptr) {  // it has no memory
    PyErr_Clear();
    return false;
  }
  first = reinterpret_cast<std::byte*>(to_address(nb::steal(address)));
  return true;
}

}  // namespace

bool TensorForm::reach(std::uint64_t& bytes) const noexcept {
  std::int64_t last = offset;
  bytes = 0;
  if (offset < 0) return false;
  for (std::size_t i = 0; i < dims; ++i) {
    if (sizes[i] < 0 || strides[i] < 0) return false;
  }
  for (std::size_t i = 0; i < dims; ++i) {
    if (sizes[i] == 0) return true;
    std::int64_t on;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &on) ||
        __builtin_add_overflow(last, on, &last)) {
      return false;
    }
  }
  return !__builtin_mul_overflow(static_cast<std::uint64_t>(last) + 1, item_bytes(), &bytes);
}

bool TensorForm::has_sizes_of(const TensorForm& other) const noexcept {
  return device == other.device && dtype == other.dtype &&
         std::ranges::equal(all_sizes(), other.all_sizes()) &&
         std::ranges::equal(all_strides(), other.all_strides());
}

bool read_sizes(nb::handle object, TensorForm& form, std::byte*& first) {
  const dlpack::ExchangeApi* const api = TorchApi::here().exchange_api();
  return (api != nullptr && read_at_once(*api, object, form, first)) ||
         read_by_attributes(object, form, first);
}

bool read_form(nb::handle object, TensorForm& form, std::byte*& first) {
  if (!read_sizes(object, form, first)) return false;
  form.offset = to_int(call<"storage_offset">(object));
  if (first != nullptr) return true;
  const auto sizes = form.all_sizes();
  return std::ranges::find(sizes, 0) != sizes.end();
}

}  // namespace shoal::python
