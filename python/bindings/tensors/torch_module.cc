// shoal._torch: tensors of Python's torch whose bytes lie in the family's heap. Use it through
// shoal.multiprocessing.
#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>
#include <unistd.h>

#include "objects/packers.h"
#include "shoal/ipc/device/device_memory.h"
#include "tensors/torch_device.h"
#include "tensors/torch_packed.h"
#include "tensors/torch_storage.h"

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

nb::object bytes_of(const Packed& packed, nb::list& blocks) {
  for (const ipc::Block& block : packed.blocks) blocks.append(nb::cast(block));
  return nb::bytes(packed.bytes.data(), packed.bytes.size());
}

/// Once a process, before it sends or receives a tensor on a device.
void before_device_tensors() {
  static pid_t done = 0;
  if (done == ::getpid()) return;
  nb::module_::import_("shoal.ipc.tensors").attr("_before_device_tensors")();
  done = ::getpid();
}

/// What a tensor becomes in a message; nothing for one whose storage can neither lie in the heap nor
/// cross from its device.
std::optional<Packed> pack_tensor(nb::handle object) {
  const at::Tensor& tensor = tensor_of(object);
  if (!is_plain(tensor)) return std::nullopt;
  if (tensor.is_cuda()) before_device_tensors();
  return pack(tensor, object.type().ptr() == ParameterClass);
}

/// What needs a look, a warning or an error is left to _reduce_tensor() of shoal.ipc.tensors.
std::optional<Packed> pack_plain_tensor(nb::handle object) {
  const at::Tensor& tensor = tensor_of(object);
  if (tensor.requires_grad() && !tensor.is_leaf()) return std::nullopt;
  if (reinterpret_cast<THPVariable*>(object.ptr())->backward_hooks != nullptr) return std::nullopt;
  return pack_tensor(object);
}

nb::object unpack_tensor(std::string_view packed) {
  if (is_on_device(packed)) before_device_tensors();
  const Unpacked unpacked = unpack(packed);
  nb::object tensor = nb::steal(THPVariable_Wrap(unpacked.tensor));
  if (!unpacked.parameter) {
    if (unpacked.requires_grad) unpacked.tensor.set_requires_grad(true);
    return tensor;
  }
  return nb::borrow(ParameterClass)(tensor, "requires_grad"_a = unpacked.requires_grad);
}

constexpr Packer kPacker{pack_plain_tensor, unpack_tensor};

nb::object pack_storage(nb::handle object, nb::list blocks) {
  c10::StorageImpl& storage = storage_of(object);
  check_on_cpu(storage);
  return bytes_of(pack(storage), blocks);
}

nb::object unpack_storage(nb::bytes bytes) {
  return nb::steal(
      torch::createPyObject(at::Storage(unpack_storage_of({bytes.c_str(), bytes.size()}))));
}

void share(nb::handle object) {
  c10::StorageImpl& storage = storage_of(object);
  if (storage.nbytes() == 0) return;
  if (storage.device_type() == c10::DeviceType::CUDA) {
    before_device_tensors();
    move_to_segment(storage);
    return;
  }
  check_on_cpu(storage);
  move_to_heap(storage);
}

/// torch's from_blob() for a CUDA device, which a torch without CUDA refuses.
nb::object device_tensor(nb::handle like, std::uint64_t address, int device, nb::object owner) {
  const at::Tensor& form = tensor_of(like);
  const auto drop = [](void* object) {
    const nb::gil_scoped_acquire gil;
    nb::handle(static_cast<PyObject*>(object)).dec_ref();
  };
  auto storage =
      storage_on_device(device, address, form.storage().nbytes(), {owner.release().ptr(), drop});
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CUDA), form.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(form.sizes(), form.strides(),
                                                      form.storage_offset());
  return nb::steal(THPVariable_Wrap(std::move(tensor)));
}

nb::dict device_stats() {
  const ipc::DeviceMemoryStats stats = ipc::DeviceMemory::here().stats();
  nb::dict figures;
  figures["given"] = stats.given;
  figures["left"] = stats.left;
  figures["releasing"] = stats.releasing;
  figures["mapped"] = stats.mapped;
  figures["segments"] = stats.segments;
  figures["marks"] = stats.marks;
  return figures;
}

bool is_shared(nb::handle object) {
  const c10::StorageImpl& storage = storage_of(object);
  return storage.device_type() == c10::DeviceType::CPU && location_of(storage).has_value();
}

}  // namespace
}  // namespace shoal::python

NB_MODULE(_torch, module) {
  using namespace shoal::python;
  module.doc() = "Tensors in shared memory. Use it through shoal.multiprocessing.";
  nb::module_::import_("torch");        // its classes are made before they are asked for
  nb::module_::import_("shoal._core");  // its types and exceptions are ours too
  module.def(
      "tensor_packer", []() -> nb::object { return kPacker.capsule(); },
      "What add_packer() takes for tensors.");
  module.def(
      "pack_tensor",
      [](nb::handle tensor, nb::list blocks) -> nb::object {
        const auto packed = pack_tensor(tensor);
        return packed ? bytes_of(*packed, blocks) : nb::none();
      },
      "tensor"_a, "blocks"_a,
      "The tensor as bytes that name a block of the heap, into which its storage moves "
      "(from the CPU) or which stands for it (on a CUDA device); None for tensors without "
      "plain storage there. The blocks are appended to `blocks`.");
  module.def(
      "unpack_tensor",
      [](const nb::bytes& packed) { return unpack_tensor({packed.c_str(), packed.size()}); },
      "packed"_a, "The tensor that pack_tensor() described.");
  module.def("pack_storage", &pack_storage, "storage"_a, "blocks"_a,
             "As pack_tensor(), of an untyped storage.");
  module.def("unpack_storage", &unpack_storage, "packed"_a,
             "The storage that pack_storage() described.");
  module.def(
      "share", &share, "storage"_a,
      "Moves a storage into the heap (from the CPU), or into memory that outlives this process "
      "(on a CUDA device), in place.");
  module.def("is_shared", &is_shared, "storage"_a, "Whether a storage lies in the heap.");
  module.def("device_tensor", &device_tensor, "like"_a, "address"_a, "device"_a, "owner"_a,
             "A tensor at an address on a CUDA device, which `owner` keeps, with the dtype, shape, "
             "strides and size of storage of the CPU tensor `like`.");
  module.def(
      "device_collect", [] { shoal::ipc::DeviceMemory::here().collect(); },
      nb::call_guard<nb::gil_scoped_release>(),
      "Gives back memory of CUDA devices that no other process holds any more.");
  module.def(
      "device_finish", [] { shoal::ipc::DeviceMemory::here().finish(); },
      nb::call_guard<nb::gil_scoped_release>(),
      "Waits for the work whose results were sent: before this process ends.");
  module.def("device_stats", &device_stats,
             "Figures of this process's memory on CUDA devices: `given` and kept for whoever holds "
             "it, `left` of that without a storage here, `releasing` until work is done, `mapped` "
             "of other processes, `segments` of its own, `marks` of work under way.");
}
