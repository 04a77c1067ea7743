#include "tensors/torch_api.h"

#include <algorithm>
#include <utility>

#include "tensors/calls.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

nb::handle for_ever(nb::object object) { return object.release(); }

nb::object tuple_of(std::span<const std::int64_t> values) {
  nb::object tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (std::size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i),
                     checked(PyLong_FromLongLong(values[i])).release().ptr());
  }
  return tuple;
}

/// Of a capsule that nobody took over.
void drop(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, dlpack::kCapsule) == 0) return;
  auto* const managed =
      static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, dlpack::kCapsule));
  managed->deleter(managed);
}

const dlpack::ExchangeApi* find_exchange_api(nb::handle tensor_type) {
  const nb::object capsule = nb::getattr(tensor_type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::kExchangeApiCapsule) == 0) return nullptr;
  const auto* const api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.ptr(), dlpack::kExchangeApiCapsule));
  const bool known = api->version.major == dlpack::kMajorVersion && api->tensor_of != nullptr;
  return known ? api : nullptr;
}

}  // namespace

const TorchApi& TorchApi::here() {
  // Found twice, by two threads, does no harm; a lock around calls of Python would.
  static const TorchApi* instance = nullptr;
  if (instance == nullptr) instance = new TorchApi;
  return *instance;
}

TorchApi::TorchApi() {
  const nb::object torch = nb::module_::import_("torch");
  const nb::object c = torch.attr("_C");
  tensor_ = for_ever(torch.attr("Tensor"));
  parameter_ = for_ever(torch.attr("nn").attr("Parameter"));
  storage_ = for_ever(torch.attr("UntypedStorage"));
  from_dlpack_ = for_ever(c.attr("_from_dlpack"));
  set_metadata_ = for_ever(c.attr("_set_tensor_metadata"));
  new_with_weak_ptr_ = for_ever(storage_.attr("_new_with_weak_ptr"));
  free_weak_ref_ = for_ever(storage_.attr("_free_weak_ref"));
  exchange_api_ = find_exchange_api(tensor_);
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    nb::object dtype = nb::getattr(torch, kDTypes[i].name, nb::none());
    if (!dtype.is_none()) dtypes_[i] = dtype.release().ptr();
  }
  has_cuda_ = nb::cast<bool>(torch.attr("backends").attr("cuda").attr("is_built")());
  strided_ = for_ever(torch.attr("strided"));
  cpu_ = templates_on({dlpack::DeviceType::kCpu, 0});
}

bool TorchApi::is_tensor(nb::handle object) const {
  return object.type().is(tensor_) || object.type().is(parameter_);
}

bool TorchApi::is_storage(nb::handle object) const { return object.type().is(storage_); }

int TorchApi::dtype_of(nb::handle dtype) const noexcept {
  const auto found = std::ranges::find(dtypes_, dtype.ptr());
  return found == dtypes_.end() ? -1 : static_cast<int>(found - dtypes_.begin());
}

int TorchApi::dtype_of(const dlpack::DataType& dtype) noexcept {
  for (std::size_t i = 0; i < kDTypes.size() && kDTypes[i].is_in_dlpack(); ++i) {
    if (kDTypes[i].dlpack == dtype) return static_cast<int>(i);
  }
  return -1;
}

nb::object TorchApi::tensor_over(dlpack::ManagedTensor& managed) const {
  PyObject* const made = PyCapsule_New(&managed, dlpack::kCapsule, drop);
  if (made == nullptr) {
    managed.deleter(&managed);
    throw nb::python_error();
  }
  const nb::object capsule = nb::steal(made);
  return call_with(from_dlpack_, capsule);
}

/// Each template is a tensor without elements, of whose form and storage nothing stays in what is
/// made of it but the dtype and the device.
TorchApi::Templates TorchApi::templates_on(dlpack::Device device) const {
  // Not those of inference mode, in which this may be called first.
  const nb::object normal = nb::module_::import_("torch").attr("inference_mode")(false);
  normal.attr("__enter__")();
  Templates templates{};
  try {
    auto* const managed = new dlpack::ManagedTensor;
    std::int64_t none = 0, one = 1;
    managed->tensor = {nullptr, device, 1, kDTypes[kUInt8].dlpack, &none, &one, 0};
    managed->deleter = [](dlpack::ManagedTensor* self) { delete self; };
    const nb::object bytes = tensor_over(*managed);
    for (std::size_t i = 0; i < kDTypes.size(); ++i) {
      if (dtypes_[i] == nullptr) continue;
      templates[i] = call<"view">(bytes, nb::handle(dtypes_[i])).release().ptr();
    }
  } catch (...) {
    normal.attr("__exit__")(nb::none(), nb::none(), nb::none());
    throw;
  }
  normal.attr("__exit__")(nb::none(), nb::none(), nb::none());
  return templates;
}

nb::handle TorchApi::template_of(dlpack::Device device, int dtype) const {
  const auto place = static_cast<std::size_t>(dtype);
  if (device.type == dlpack::DeviceType::kCpu) return cpu_[place];
  const auto index = static_cast<std::size_t>(device.index);
  if (cuda_.size() <= index) cuda_.resize(index + 1);
  if (cuda_[index][0] == nullptr) {
    const Templates made = templates_on(device);  // gives the GIL away
    cuda_[index] = made;
  }
  return cuda_[index][place];
}

nb::object TorchApi::tensor_on(nb::handle storage, dlpack::Device device, int dtype,
                               std::int64_t offset, std::span<const std::int64_t> sizes,
                               std::span<const std::int64_t> strides) const {
  return set(beside(template_of(device, dtype)), storage, offset, sizes, strides);
}

nb::object TorchApi::set(nb::handle tensor, nb::handle storage, std::int64_t offset,
                         std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides) {
  const nb::object at = checked(PyLong_FromLongLong(offset));
  return call<"set_">(tensor, storage, at, tuple_of(sizes), tuple_of(strides));
}

nb::object TorchApi::beside(nb::handle tensor) { return field<"data">(tensor); }

nb::object TorchApi::lock_tensor(nb::handle reference) {
#if PY_VERSION_HEX >= 0x030d0000
  PyObject* found = nullptr;
  PyWeakref_GetRef(reference.ptr(), &found);
  nb::object tensor = nb::steal(found);
#else
  PyObject* const found = PyWeakref_GET_OBJECT(reference.ptr());
  nb::object tensor = found == Py_None ? nb::object() : nb::borrow(found);
#endif
  // Of one that only torch's C++ has kept, Python is the owner again.
  if (tensor.is_valid()) call<"_fix_weakref">(tensor);
  return tensor;
}

bool TorchApi::is_of_inference_mode(nb::handle tensor) {
  try {
    field<"_version">(tensor);  // which such tensors have not
    return false;
  } catch (const nb::python_error&) {
    return true;
  }
}

void TorchApi::set_bits(nb::handle tensor, bool conjugate, bool negative) const {
  nb::dict bits;
  if (conjugate) bits["conj"] = true;
  if (negative) bits["neg"] = true;
  set_metadata_(tensor, bits);
}

nb::object TorchApi::parameter(nb::handle tensor, bool requires_grad) const {
  return parameter_(tensor, "requires_grad"_a = requires_grad);
}

std::uintptr_t TorchApi::weak(nb::handle storage) { return to_address(call<"_weak_ref">(storage)); }

nb::object TorchApi::lock(std::uintptr_t weak) const {
  return call_with(new_with_weak_ptr_, from_address(weak));
}

void TorchApi::free(std::uintptr_t weak) const { call_with(free_weak_ref_, from_address(weak)); }

nb::object TorchApi::storage_of(nb::handle tensor) { return call<"untyped_storage">(tensor); }

std::uint64_t TorchApi::bytes_of(nb::handle storage) { return to_address(call<"nbytes">(storage)); }

std::uintptr_t TorchApi::address_of(nb::handle storage) {
  return to_address(call<"data_ptr">(storage));
}

nb::object TorchApi::empty_storage(dlpack::Device device) const {
  if (device.type == dlpack::DeviceType::kCpu) return storage_(0);
  if (!has_cuda_) return call<"untyped_storage">(template_of(device, kUInt8));
  const nb::object on = nb::module_::import_("torch").attr("device")("cuda", device.index);
  return storage_(0, "device"_a = on);
}

}  // namespace shoal::python
