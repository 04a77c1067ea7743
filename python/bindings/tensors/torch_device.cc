#include "tensors/torch_device.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <utility>

#include "shoal/ipc/device/device_memory.h"
#include "shoal/shm/cuda/ipc_memory.h"
#include "tensors/torch_known_storages.h"

namespace shoal::python {
namespace {

using ipc::DeviceMemory;
using ipc::DeviceView;
using Stream = shm::cuda::abi::Stream;

/// What a storage that crosses owns, as the context of its data pointer.
struct Held {
  DeviceView view;
};

/// By their blocks.
using Known = KnownStorages<ipc::Offset, Held>;

c10::Device on_device(int index) {
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)};
}

/// torch's own, where it was built with CUDA.
const c10::impl::DeviceGuardImplInterface* guard() {
  return c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)
             ? c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)
             : nullptr;
}

/// The one that torch queues work on in this thread; the default one without torch's CUDA.
Stream current_stream(int device) {
  const auto* impl = guard();
  if (impl == nullptr) return nullptr;
  return static_cast<Stream>(impl->getStreamNativeHandle(impl->getStream(on_device(device))));
}

void release(void* context) {
  const std::unique_ptr<Held> held(static_cast<Held*>(context));
  Known::here().forget(held->view.record.offset(), held.get());
  Stream stream = nullptr;
  try {
    stream = current_stream(held->view.device->index());
  } catch (const std::exception&) {
    // At the end of the process torch has no streams any more.
  }
  DeviceMemory::here().release(std::move(held->view), stream);
}

const Held* held_by(const c10::StorageImpl& storage) {
  return storage.data_ptr().cast_context<Held>(&release);
}

/// Puts a view in the place of a storage's data, which is returned.
c10::DataPtr exchange(c10::StorageImpl& storage, DeviceView view) {
  auto held = std::make_unique<Held>(Held{std::move(view)});
  c10::DataPtr before = std::move(storage._mutable_data_ptr_no_checks());
  storage.set_data_ptr_noswap({reinterpret_cast<void*>(held->view.address), held.get(), &release,
                               on_device(held->view.device->index())});
  const ipc::Offset record = held->view.record.offset();
  Known::here().remember(record, c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage),
                         held.release());
  return before;
}

/// Nothing where there is no driver, as beside a torch for ROCm.
std::optional<ipc::DeviceMemory::Device> device_of(int index) {
  try {
    return DeviceMemory::here().device(index);
  } catch (const shm::cuda::NoDriver&) {
    return std::nullopt;
  }
}

std::optional<DeviceView> give(c10::StorageImpl& storage) {
  const int index = storage.device().index();
  const auto device = device_of(index);
  const auto address = reinterpret_cast<std::uint64_t>(storage.mutable_data());
  if (!device || !shm::cuda::can_cross(**device, address)) return std::nullopt;
  const auto keep = std::make_shared<c10::DataPtr>();
  DeviceView view = DeviceMemory::here().give(index, address, storage.nbytes(), keep);
  *keep = exchange(storage, view);
  return view;
}

}  // namespace

std::optional<DeviceParcel> parcel_of(c10::StorageImpl& storage) {
  std::optional<DeviceView> view;
  if (const Held* held = held_by(storage)) {
    view = held->view;
  } else {
    view = give(storage);
  }
  if (!view) return std::nullopt;
  ipc::Block mark = DeviceMemory::here().mark(*view, current_stream(view->device->index()));
  return DeviceParcel{view->record, std::move(mark)};
}

c10::intrusive_ptr<c10::StorageImpl> device_storage_of(const DeviceParcel& parcel) {
  const auto any = [](const Held&) { return true; };
  auto storage = Known::here().find(parcel.record.offset(), any);
  if (!storage) {
    auto held = std::make_unique<Held>(Held{DeviceMemory::here().open(parcel.record)});
    const DeviceView& view = held->view;
    c10::DataPtr data(reinterpret_cast<void*>(view.address), held.get(), &release,
                      on_device(view.device->index()));
    const std::uint64_t bytes = view.bytes;
    const Held* const kept = held.release();
    storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                    std::move(data), /*allocator=*/nullptr,
                                                    /*resizable=*/false);
    Known::here().remember(parcel.record.offset(), storage, kept);
  }
  if (parcel.mark) {
    if (const Held* held = held_by(*storage)) {
      DeviceMemory::here().await(parcel.mark, held->view,
                                 current_stream(held->view.device->index()));
    }
  }
  return storage;
}

void move_to_segment(c10::StorageImpl& storage) {
  const auto address = reinterpret_cast<std::uint64_t>(storage.mutable_data());
  if (held_by(storage) != nullptr) return;
  const int index = storage.device().index();
  const Stream stream = current_stream(index);
  DeviceView view = DeviceMemory::here().allocate(index, storage.nbytes());
  try {
    view.device->copy(view.address, address, storage.nbytes(), stream);
  } catch (const Error&) {
    DeviceMemory::here().release(std::move(view), stream);
    throw;
  }
  // Its memory is used again only after the copy.
  if (const auto* impl = guard()) {
    impl->recordDataPtrOnStream(storage.data_ptr(), impl->getStream(on_device(index)));
  }
  static_cast<void>(exchange(storage, std::move(view)));
  storage.set_resizable(false);
}

c10::intrusive_ptr<c10::StorageImpl> storage_on_device(int device, std::uint64_t address,
                                                       std::uint64_t bytes,
                                                       std::shared_ptr<void> owner) {
  c10::DataPtr data(
      reinterpret_cast<void*>(address), new std::shared_ptr<void>(std::move(owner)),
      [](void* context) { delete static_cast<std::shared_ptr<void>*>(context); },
      on_device(device));
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                               std::move(data), /*allocator=*/nullptr,
                                               /*resizable=*/false);
}

c10::intrusive_ptr<c10::StorageImpl> empty_device_storage(int device) {
  c10::Allocator* const allocator =
      guard() != nullptr ? c10::GetAllocator(c10::DeviceType::CUDA) : nullptr;
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                               c10::DataPtr(nullptr, on_device(device)), allocator,
                                               /*resizable=*/allocator != nullptr);
}

}  // namespace shoal::python
