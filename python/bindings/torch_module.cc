// shoal._torch: tensors of Python's torch whose bytes lie in the family's heap. Use it through
// shoal.multiprocessing.
#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>

#include "torch_packed.h"
#include "torch_storage.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

const at::Tensor& tensor_of(nb::handle object) {
  if (!THPVariable_Check(object.ptr())) throw nb::type_error("not a torch.Tensor");
  return THPVariable_Unpack(object.ptr());
}

c10::StorageImpl& storage_of(nb::handle object) {
  if (!torch::isStorage(object.ptr())) throw nb::type_error("not a storage of torch");
  return *torch::createStorage(object.ptr()).unsafeGetStorageImpl();
}

void check_on_cpu(const c10::StorageImpl& storage) {
  if (storage.device_type() == c10::DeviceType::CPU) return;
  throw nb::value_error("only storages on the CPU lie in the heap");
}

/// What `tensor` becomes in a pickle; None for one that has no plain CPU storage in reach of the
/// heap. The block that the bytes name is appended to `blocks`.
nb::object pack_tensor(nb::handle object, nb::list blocks) {
  const at::Tensor& tensor = tensor_of(object);
  if (!is_plain(tensor)) return nb::none();
  const auto packed = pack(tensor, object.type().ptr() == ParameterClass);
  if (packed.place) blocks.append(nb::cast(packed.place->block));
  return nb::bytes(packed.bytes.data(), packed.bytes.size());
}

/// For trees: what needs a look, a warning or an error is left to pack_tensor()'s caller.
nb::object pack_plain_tensor(nb::handle object, nb::list blocks) {
  const at::Tensor& tensor = tensor_of(object);
  if (tensor.requires_grad() && !tensor.is_leaf()) return nb::none();
  if (reinterpret_cast<THPVariable*>(object.ptr())->backward_hooks != nullptr) return nb::none();
  return pack_tensor(object, blocks);
}

nb::object unpack_tensor(nb::bytes bytes) {
  const Unpacked unpacked = unpack({bytes.c_str(), bytes.size()});
  nb::object tensor = nb::steal(THPVariable_Wrap(unpacked.tensor));
  if (!unpacked.parameter) {
    if (unpacked.requires_grad) unpacked.tensor.set_requires_grad(true);
    return tensor;
  }
  return nb::borrow(ParameterClass)(tensor, "requires_grad"_a = unpacked.requires_grad);
}

nb::object pack_storage(nb::handle object, nb::list blocks) {
  c10::StorageImpl& storage = storage_of(object);
  check_on_cpu(storage);
  const auto packed = pack(storage);
  if (packed.place) blocks.append(nb::cast(packed.place->block));
  return nb::bytes(packed.bytes.data(), packed.bytes.size());
}

nb::object unpack_storage(nb::bytes bytes) {
  return nb::steal(
      torch::createPyObject(at::Storage(unpack_storage_of({bytes.c_str(), bytes.size()}))));
}

void share(nb::handle object) {
  c10::StorageImpl& storage = storage_of(object);
  check_on_cpu(storage);
  if (storage.nbytes() > 0) place_in_heap(storage);
}

bool is_shared(nb::handle object) {
  const c10::StorageImpl& storage = storage_of(object);
  return storage.device_type() == c10::DeviceType::CPU && place_of(storage).has_value();
}

}  // namespace
}  // namespace shoal::python

NB_MODULE(_torch, module) {
  using namespace shoal::python;
  module.doc() = "Tensors in shared memory. Use it through shoal.multiprocessing.";
  nb::module_::import_("torch");        // its classes are made before they are asked for
  nb::module_::import_("shoal._core");  // its types and exceptions are ours too
  module.def("pack_tensor", &pack_tensor, "tensor"_a, "blocks"_a,
             "The tensor as bytes that name a block of the heap, into which its storage moves; "
             "None for tensors "
             "without plain storage on the CPU. The block is appended to `blocks`.");
  module.def("pack_plain_tensor", &pack_plain_tensor, "tensor"_a, "blocks"_a,
             "As pack_tensor(), and None for what it would have to be refused or warned of.");
  module.def("unpack_tensor", &unpack_tensor, "packed"_a,
             "The tensor that pack_tensor() described.");
  module.def("pack_storage", &pack_storage, "storage"_a, "blocks"_a,
             "As pack_tensor(), of an untyped storage.");
  module.def("unpack_storage", &unpack_storage, "packed"_a,
             "The storage that pack_storage() described.");
  module.def("share", &share, "storage"_a, "Moves a storage on the CPU into the heap, in place.");
  module.def("is_shared", &is_shared, "storage"_a, "Whether a storage lies in the heap.");
}
