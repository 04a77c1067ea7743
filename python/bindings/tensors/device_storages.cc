#include "tensors/device_storages.h"

#include <unistd.h>

#include <array>
#include <memory>
#include <utility>

#include "shoal/ipc/device/device_memory.h"
#include "shoal/os/error.h"
#include "shoal/shm/cuda/ipc_memory.h"
#include "tensors/calls.h"
#include "tensors/device_stream.h"
#include "tensors/known_storages.h"
#include "tensors/storage_exchange.h"
#include "tensors/torch_api.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

using ipc::DeviceMemory;
using ipc::DeviceView;
using Address = shm::cuda::abi::Address;

/// What a storage that crosses owns.
struct Held {
  DeviceView view;
  dlpack::ManagedTensor managed;

  explicit Held(DeviceView of) : view(std::move(of)) {}
};

/// By the address of their bytes.
using Known = KnownStorages<Address, Held>;

/// The deleter of the memory.
void release(dlpack::ManagedTensor* managed) {
  const std::unique_ptr<Held> held(static_cast<Held*>(managed->context));
  Known::here().forget(held->view.address, held.get());
  const auto stream = current_stream(held->view.device->index());
  DeviceMemory::here().release(std::move(held->view), stream);
}

/// The bytes of a view as a tensor, which takes `held` over.
nb::object tensor_over(std::unique_ptr<Held> held) {
  Held& taken = *held.release();
  std::array size{static_cast<std::int64_t>(taken.view.bytes)};
  std::array<std::int64_t, 1> stride{1};
  constexpr dlpack::DataType kByte{dlpack::TypeCode::kUInt, 8, 1};
  const dlpack::Device device{dlpack::DeviceType::kCuda, taken.view.device->index()};
  taken.managed.tensor = {
      reinterpret_cast<void*>(taken.view.address), device, 1, kByte, size.data(), stride.data(), 0};
  taken.managed.context = &taken;
  taken.managed.deleter = release;
  return TorchApi::here().tensor_over(taken.managed);
}

/// The view that a storage has, if it crosses already.
std::optional<DeviceView> view_of(nb::handle storage) {
  const std::uint64_t bytes = TorchApi::bytes_of(storage);
  std::optional<DeviceView> view;
  Known::here().look(TorchApi::address_of(storage), [&](const Known::Entry& entry) {
    if (entry.held->view.bytes == bytes) view = entry.held->view;
  });
  return view;
}

/// Puts a view in the place of a storage's memory, of which a tensor is returned; None where another
/// thread has done so meanwhile.
nb::object exchange(nb::handle storage, DeviceView view) {
  const Address before = TorchApi::address_of(storage);
  auto held = std::make_unique<Held>(std::move(view));
  const Held& kept = *held;
  nb::object tensor = tensor_over(std::move(held));
  const nb::object its_storage = TorchApi::storage_of(tensor);
  if (view_of(storage) || TorchApi::address_of(storage) != before) return nb::none();
  exchange_memory(storage, its_storage);
  Known::here().remember(kept.view.address, storage, &kept);
  return tensor;
}

/// Nothing where there is no driver, as beside a torch for ROCm.
std::optional<DeviceMemory::Device> device_of(int index) {
  try {
    return DeviceMemory::here().device(index);
  } catch (const shm::cuda::NoDriver&) {
    return std::nullopt;
  }
}

/// A Python object that may go in any thread.
class Kept {
 public:
  void keep(nb::object object) noexcept { object_ = object.release().ptr(); }
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    if (object_ == nullptr || !nb::is_alive()) return;  // the interpreter ends, and all with it
    const nb::gil_scoped_acquire gil;
    Py_DECREF(object_);
  }

 private:
  PyObject* object_ = nullptr;
};

std::optional<DeviceView> give(nb::handle storage, int index) {
  const Address address = TorchApi::address_of(storage);
  const auto device = device_of(index);
  if (!device || exchange_kind() == Exchange::kNone || !shm::cuda::can_cross(**device, address)) {
    return std::nullopt;
  }
  const auto keep = std::make_shared<Kept>();
  DeviceView view = DeviceMemory::here().give(index, address, TorchApi::bytes_of(storage), keep);
  nb::object memory = exchange(storage, view);
  if (memory.is_none()) return view_of(storage);
  keep->keep(std::move(memory));
  return view;
}

}  // namespace

void before_device_tensors() {
  static pid_t done = 0;
  if (done == ::getpid()) return;
  nb::module_::import_("shoal.ipc.device_tensors").attr("before_first_use")();
  find_streams();
  done = ::getpid();
}

std::optional<DeviceParcel> parcel_of(nb::handle storage, int device) {
  std::optional<DeviceView> view = view_of(storage);
  if (!view) view = give(storage, device);
  if (!view) return std::nullopt;
  ipc::Block mark = DeviceMemory::here().mark(*view, current_stream(device));
  return DeviceParcel{view->record, std::move(mark)};
}

DeviceStorage device_storage_of(const DeviceParcel& parcel) {
  DeviceView view = DeviceMemory::here().open(parcel.record);
  DeviceStorage found{{}, view.device->index(), view.bytes};
  const auto the_same = [&](const Held& held) {
    return held.view.record.offset() == view.record.offset();
  };
  found.storage = Known::here().find(view.address, the_same);
  if (found.storage.is_none()) {
    auto held = std::make_unique<Held>(view);
    const Held& kept = *held;
    nb::object made = TorchApi::storage_of(tensor_over(std::move(held)));
    found.storage = Known::here().find(view.address, the_same);  // another thread's
    if (found.storage.is_none()) {
      Known::here().remember(view.address, made, &kept);
      found.storage = std::move(made);
    }
  }
  if (parcel.mark) DeviceMemory::here().await(parcel.mark, view, current_stream(found.device));
  return found;
}

nb::object move_to_segment(nb::handle storage, int device) {
  if (view_of(storage)) return nb::none();
  if (exchange_kind() == Exchange::kNone) {
    throw Error(
        "the storages of this torch cannot be moved to shared memory: Shoal does not know their "
        "kind. Use a release of torch from 2.6 on");
  }
  const Address address = TorchApi::address_of(storage);
  const std::uint64_t bytes = TorchApi::bytes_of(storage);
  const auto stream = current_stream(device);
  DeviceView view = DeviceMemory::here().allocate(device, bytes);
  try {
    view.device->copy(view.address, address, bytes, stream);
  } catch (const Error&) {
    DeviceMemory::here().release(std::move(view), stream);
    throw;
  }
  return exchange(storage, std::move(view));
}

}  // namespace shoal::python
