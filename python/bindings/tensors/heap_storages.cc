#include "tensors/heap_storages.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "shoal/ipc/heap/heap.h"
#include "tensors/calls.h"
#include "tensors/known_storages.h"
#include "tensors/storage_exchange.h"
#include "tensors/waiting_for_gil.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

/// Copies from this size on are made without the GIL.
constexpr std::uint64_t kLongCopyBytes = 128 * 1024;

constexpr dlpack::Device kCpu{dlpack::DeviceType::kCpu, 0};

/// What a storage in the heap owns.
struct Held {
  HeapLocation location;
  /// What the storage had before, where somebody may hold its address: t.numpy() does, and marks
  /// the storage as one of fixed size.
  PyObject* before = nullptr;
  dlpack::ManagedTensor managed;

  explicit Held(HeapLocation at) : location(std::move(at)) {}
  std::byte* address() const { return location.block.data() + location.start; }
};

/// By the address of their bytes.
using Known = KnownStorages<const std::byte*, Held>;

/// The deleter of the memory.
void release(dlpack::ManagedTensor* managed) {
  const std::unique_ptr<Held> held(static_cast<Held*>(managed->context));
  Known::here().forget(held->address(), held.get());
  if (held->before != nullptr) WaitingForGil::decref(held->before);
}

/// A tensor of this form over all of the memory, which takes `held` over.
nb::object tensor_over(std::unique_ptr<Held> held, dlpack::DataType dtype,
                       std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  Held& taken = *held.release();
  // torch reads them now, and changes nothing.
  auto* const size = const_cast<std::int64_t*>(sizes.data());
  auto* const stride = const_cast<std::int64_t*>(strides.data());
  taken.managed.tensor = {taken.address(), kCpu,   static_cast<std::int32_t>(sizes.size()), dtype,
                          size,            stride, 0};
  taken.managed.context = &taken;
  taken.managed.deleter = release;
  return TorchApi::here().tensor_over(taken.managed);
}

nb::object bytes_over(std::unique_ptr<Held> held) {
  constexpr dlpack::DataType kByte{dlpack::TypeCode::kUInt, 8, 1};
  const std::array size{static_cast<std::int64_t>(held->location.bytes)};
  const std::array<std::int64_t, 1> stride{1};
  return tensor_over(std::move(held), kByte, size, stride);
}

/// Whether the form is the one of the elements of all of the storage.
bool is_whole(const TensorForm& form, std::uint64_t bytes) {
  std::uint64_t reach = 0;
  return kDTypes[form.dtype].is_in_dlpack() && form.offset == 0 && form.reach(reach) &&
         reach == bytes;
}

/// The storage that is known there; None for a new one.
nb::object find(const HeapLocation& location) {
  const auto whole = [&](const Held& held) { return held.location.bytes == location.bytes; };
  return Known::here().find(location.block.data() + location.start, whole);
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

std::byte* address_of(nb::handle storage) {
  return reinterpret_cast<std::byte*>(to_address(call<"data_ptr">(storage)));
}

std::optional<HeapLocation> location_at(const std::byte* address, std::uint64_t bytes) {
  if (address == nullptr || !ipc::Heap::exists() || !ipc::Heap::here()->contains(address)) {
    return std::nullopt;
  }
  if (auto known = known_location(address, bytes)) return known;
  // An array's memory, or another library's, may lie in the heap.
  const ipc::Offset around = ipc::Heap::here()->held_around(address);
  if (around == 0) return std::nullopt;
  HeapLocation location{ipc::Block::acquire(around), 0, bytes};
  location.start = static_cast<std::uint64_t>(address - location.block.data());
  return location;
}

/// A copy of the bytes in a block, of which nothing is known yet.
std::unique_ptr<Held> copied(const std::byte* from, std::uint64_t bytes) {
  auto held = std::make_unique<Held>(HeapLocation{ipc::Block::allocate(bytes), 0, bytes});
  const WithoutGil without(bytes >= kLongCopyBytes);
  std::memcpy(held->address(), from, bytes);
  return held;
}

}  // namespace

std::optional<HeapLocation> known_location(const std::byte* address, std::uint64_t least_bytes) {
  HeapLocation location;
  ipc::Offset block = 0;
  Known::here().look(address, [&](const Held& held, std::uintptr_t) {
    if (held.location.bytes < least_bytes) return;
    block = held.location.block.offset();
    location.start = held.location.start;
    location.bytes = held.location.bytes;
  });
  if (block == 0) return std::nullopt;
  location.block = ipc::Block::acquire(block);
  return location;
}

std::optional<HeapLocation> location_of(nb::handle storage) {
  return location_at(address_of(storage), to_address(call<"nbytes">(storage)));
}

std::optional<HeapLocation> move_to_heap(nb::handle storage) {
  const std::uint64_t bytes = to_address(call<"nbytes">(storage));
  for (;;) {
    std::byte* const from = address_of(storage);  // what is copied on write becomes its own
    if (auto location = location_at(from, bytes)) return location;
    if (exchange_kind() == Exchange::kNone) return std::nullopt;
    std::unique_ptr<Held> held = copied(from, bytes);
    Held& kept = *held;
    HeapLocation location = held->location;
    nb::object before = bytes_over(std::move(held));
    const nb::object its_storage = call<"untyped_storage">(before);
    if (address_of(storage) != from) continue;  // another thread has moved it meanwhile
    exchange_memory(storage, its_storage);
    Known::here().remember(kept.address(), storage, &kept);
    const bool had_fixed_size = call<"resizable">(its_storage).ptr() != Py_True;
    if (had_fixed_size) kept.before = before.release().ptr();
    return location;
  }
}

nb::object storage_at(HeapLocation location) {
  if (nb::object storage = find(location); !storage.is_none()) return storage;
  auto held = std::make_unique<Held>(location);
  const Held& kept = *held;
  nb::object made = call<"untyped_storage">(bytes_over(std::move(held)));
  // Another thread may have made it meanwhile.
  if (nb::object storage = find(location); !storage.is_none()) return storage;
  Known::here().remember(kept.address(), made, &kept);
  return made;
}

nb::object tensor_at(HeapLocation location, const TensorForm& form) {
  const TorchApi& torch = TorchApi::here();
  nb::object storage = find(location);
  if (storage.is_none() && is_whole(form, location.bytes)) {
    auto held = std::make_unique<Held>(location);
    const Held& kept = *held;
    nb::object tensor = tensor_over(std::move(held), kDTypes[form.dtype].dlpack, form.all_sizes(),
                                    form.all_strides());
    storage = find(location);
    if (storage.is_none()) {
      Known::here().remember(kept.address(), call<"untyped_storage">(tensor), &kept);
      return tensor;
    }
  }
  if (storage.is_none()) storage = storage_at(std::move(location));
  return torch.tensor_on(storage, kCpu, form.dtype, form.offset, form.all_sizes(),
                         form.all_strides());
}

}  // namespace shoal::python
