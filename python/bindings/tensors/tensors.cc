// shoal._core.tensors: torch's tensors whose bytes lie in the family's heap, or on devices. Use it
// through shoal.multiprocessing. torch is not needed to load this, and is not loaded by it.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "objects/packers.h"
#include "shoal/ipc/device/device_memory.h"
#include "tensors/calls.h"
#include "tensors/device_storages.h"
#include "tensors/heap_storages.h"
#include "tensors/packed_tensors.h"
#include "tensors/storage_exchange.h"
#include "tensors/torch_api.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

constexpr Packer kPacker{pack_plain_tensor, unpack_tensor};

nb::object bytes_in(const std::optional<Packed>& packed, nb::list& blocks) {
  if (!packed) return nb::none();
  for (const ipc::Block& block : packed->blocks) blocks.append(nb::cast(block));
  return nb::bytes(packed->bytes.data(), packed->bytes.size());
}

std::string_view text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::handle checked_storage(nb::handle object) {
  if (!TorchApi::here().is_storage(object)) throw nb::type_error("not a storage of torch");
  return object;
}

nb::handle cpu_storage(nb::handle object) {
  const nb::object device = attribute<"device">(checked_storage(object));
  if (!nb::cast<nb::str>(device.attr("type")).equal(nb::str("cpu"))) {
    throw nb::value_error("only storages on the CPU lie in the heap");
  }
  return object;
}

const char* exchange_name() {
  switch (exchange_kind()) {
    case Exchange::kTorchs:
      return "torch";
    case Exchange::kWords:
      return "words";
    case Exchange::kNone:
      break;
  }
  return "none";
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

void bind_heap(nb::module_& module) {
  module.def(
      "tensor_packer", []() -> nb::object { return kPacker.capsule(); },
      "What ipc.add_packer() takes for tensors.");
  module.def(
      "pack_tensor",
      [](nb::handle tensor, nb::list blocks) { return bytes_in(pack_tensor(tensor), blocks); },
      "tensor"_a, "blocks"_a,
      "The tensor as bytes that name a block of the heap, into which its storage moves "
      "(from the CPU) or which stands for it (on a CUDA device); None for tensors without "
      "plain storage there. The blocks are appended to `blocks`.");
  module.def(
      "unpack_tensor", [](const nb::bytes& packed) { return unpack_tensor(text_of(packed)); },
      "packed"_a, "The tensor that pack_tensor() described.");
  module.def(
      "pack_storage",
      [](nb::handle storage, nb::list blocks) {
        return bytes_in(pack_storage(cpu_storage(storage)), blocks);
      },
      "storage"_a, "blocks"_a,
      "As pack_tensor(), of an untyped storage on the CPU; None where storages of this torch "
      "cannot be moved.");
  module.def(
      "unpack_storage", [](const nb::bytes& packed) { return unpack_storage(text_of(packed)); },
      "packed"_a, "The storage that pack_storage() described.");
  module.def(
      "share",
      [](nb::handle storage) {
        TorchApi::address_of(cpu_storage(storage));  // what is copied on write becomes its own
        return move_to_heap(storage, bytes_of(storage)).has_value();
      },
      "storage"_a,
      "Moves a storage on the CPU, of at least one byte, into the heap, in place; False where "
      "storages of this torch cannot be moved.");
  module.def(
      "is_shared", [](nb::handle storage) { return location_of(cpu_storage(storage)).has_value(); },
      "storage"_a, "Whether a storage on the CPU lies in the heap.");
  module.def(
      "new_storage",
      [](std::uint64_t nbytes) { return storage_at({ipc::Block::allocate(nbytes), 0, nbytes}); },
      "nbytes"_a, "A storage of that many bytes in the heap, at least one; not initialised.");
  module.def(
      "exchange_kind", &exchange_name,
      "How storages are moved in place: by \"torch\"'s own function (2.12 and newer), by the "
      "\"words\" that hold their memory, or \"none\": they cannot be.");
}

void bind_devices(nb::module_& module) {
  module.def(
      "share_on_device",
      [](nb::handle storage, int device) {
        before_device_tensors();
        return move_to_segment(checked_storage(storage), device);
      },
      "storage"_a, "device"_a,
      "Moves a storage on a CUDA device, of at least one byte, into memory that outlives this "
      "process, in place. A tensor on the memory that it had, which a copy on the current stream "
      "reads; None where others may see the storage already.");
  module.def(
      "device_collect", [] { ipc::DeviceMemory::here().collect(); },
      nb::call_guard<nb::gil_scoped_release>(),
      "Gives back memory of CUDA devices that no other process holds any more.");
  module.def(
      "device_finish", [] { ipc::DeviceMemory::here().finish(); },
      nb::call_guard<nb::gil_scoped_release>(),
      "Waits for the work whose results were sent: before this process ends.");
  module.def("device_stats", &device_stats,
             "Figures of this process's memory on CUDA devices: `given` and kept for whoever holds "
             "it, `left` of that without a storage here, `releasing` until work is done, `mapped` "
             "of other processes, `segments` of its own, `marks` of work under way.");
}

}  // namespace

void bind_tensors(nb::module_& parent) {
  nb::module_ module =
      parent.def_submodule("tensors", "torch's tensors that several processes see.");
  bind_heap(module);
  bind_devices(module);
}

}  // namespace shoal::python
