#include "tensors/torch_storage.h"

#include <Python.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <utility>

#include "shoal/ipc/heap/heap.h"
#include "tensors/torch_known_storages.h"

namespace shoal::python {
namespace {

/// Copies from this size on are made without the GIL.
constexpr std::uint64_t kLongCopyBytes = 128 * 1024;

/// What a storage in the heap owns, as the context of its data pointer.
struct Held {
  HeapLocation location;
  std::uint64_t bytes;
  /// What the storage had before, where somebody may hold its address: t.numpy() does, and marks
  /// the storage as one of fixed size.
  c10::DataPtr before;
};

/// By the address of their bytes.
using Known = KnownStorages<const void*, Held>;

const void* address_of(const HeapLocation& location) {
  return location.block.data() + location.start;
}

void release(void* context) {
  Held* held = static_cast<Held*>(context);
  Known::here().forget(address_of(held->location), held);
  delete held;
}

c10::DataPtr data_of(Held* held) {
  return {held->location.block.data() + held->location.start, held, &release, c10::DeviceType::CPU};
}

class WithoutGil {
 public:
  explicit WithoutGil(bool wanted) : state_(wanted ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

const Held* held_by(const c10::StorageImpl& storage) {
  return storage.data_ptr().cast_context<Held>(&release);
}

}  // namespace

std::optional<HeapLocation> location_of(const c10::StorageImpl& storage) {
  if (const Held* held = held_by(storage)) return held->location;
  const void* data = storage.data();
  if (data == nullptr || !ipc::Heap::exists()) return std::nullopt;
  // An array's memory, or another library's, may lie in the heap.
  const ipc::Offset around = ipc::Heap::here()->held_around(data);
  if (around == 0) return std::nullopt;
  ipc::Block block = ipc::Block::acquire(around);
  const auto start = static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - block.data());
  return HeapLocation{std::move(block), start};
}

HeapLocation move_to_heap(c10::StorageImpl& storage) {
  const void* data = storage.mutable_data();  // what is copied on write becomes its own
  if (auto location = location_of(storage)) return *std::move(location);
  const std::uint64_t bytes = storage.nbytes();
  auto held = std::make_unique<Held>(Held{HeapLocation{ipc::Block::allocate(bytes), 0}, bytes, {}});
  {
    const WithoutGil without(bytes >= kLongCopyBytes);
    std::memcpy(held->location.block.data(), data, bytes);
  }
  // Another thread may have moved it meanwhile.
  if (auto location = location_of(storage)) return *std::move(location);
  HeapLocation location = held->location;
  c10::DataPtr& now = storage._mutable_data_ptr_no_checks();
  if (!storage.resizable()) held->before = std::move(now);
  Held* const kept = held.release();
  storage.set_data_ptr_noswap(data_of(kept));
  storage.set_resizable(false);
  Known::here().remember(address_of(location),
                         c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage), kept);
  return location;
}

c10::intrusive_ptr<c10::StorageImpl> storage_at(HeapLocation location, std::uint64_t bytes) {
  const void* address = address_of(location);
  const auto whole = [bytes](const Held& held) { return held.bytes == bytes; };
  if (auto storage = Known::here().find(address, whole)) return storage;
  Held* const held = new Held{std::move(location), bytes, {}};
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       data_of(held), /*allocator=*/nullptr,
                                                       /*resizable=*/false);
  Known::here().remember(address, storage, held);
  return storage;
}

}  // namespace shoal::python
