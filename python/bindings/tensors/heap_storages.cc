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
  /// the storage as one of fixed size. As a tensor, or as memory (Exchange::kWords).
  PyObject* before = nullptr;
  StorageMemory memory_before{};
  dlpack::ManagedTensor managed;  // where torch has it from DLPack

  explicit Held(HeapLocation at) : location(std::move(at)) {}
  std::byte* address() const { return location.block.data() + location.start; }
};

/// By the address of their bytes.
using Known = KnownStorages<const std::byte*, Held>;

/// The deleter of the memory.
void release(void* context) {
  const std::unique_ptr<Held> held(static_cast<Held*>(context));
  Known::here().forget(held->address(), held.get());
  if (held->before != nullptr) WaitingForGil::decref_soon(held->before);
  held->memory_before.give_back();
}

/// A tensor of this form over all of the memory, which takes `held` over.
nb::object tensor_over(std::unique_ptr<Held> held, dlpack::DataType dtype,
                       std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  Held& taken = *held.release();
  // torch reads them now, and changes nothing.
  auto* const size = const_cast<std::int64_t*>(sizes.data());
  auto* const stride = const_cast<std::int64_t*>(strides.data());
  taken.managed.tensor = {
      taken.address(), kCpu, static_cast<std::int32_t>(sizes.size()), dtype, size, stride, 0};
  taken.managed.context = &taken;
  taken.managed.deleter = [](dlpack::ManagedTensor* self) { release(self->context); };
  return TorchApi::here().tensor_over(taken.managed);
}

/// All of the elements of a DLPack type.
nb::object elements_over(std::unique_ptr<Held> held, const DType& dtype) {
  const std::array size{static_cast<std::int64_t>(held->location.bytes / dtype.bytes)};
  const std::array<std::int64_t, 1> stride{1};
  return tensor_over(std::move(held), dtype.dlpack, size, stride);
}

nb::object bytes_over(std::unique_ptr<Held> held) {
  return elements_over(std::move(held), kDTypes[kUInt8]);
}

/// Whether the form is the one of the elements of all of the storage.
bool is_whole(const TensorForm& form, std::uint64_t bytes) {
  std::uint64_t reach = 0;
  return form.offset == 0 && form.reach(reach) && reach == bytes;
}

/// The storage that is known there; None for a new one.
nb::object find(const HeapLocation& location) {
  const auto whole = [&](const Held& held) { return held.location.bytes == location.bytes; };
  return Known::here().find(location.block.data() + location.start, whole);
}

/// A tensor of this form, made from the one that is remembered there; an invalid object where that is
/// gone, or is another.
nb::object beside_remembered(const HeapLocation& location, const TensorForm& form) {
  std::byte* const address = location.block.data() + location.start;
  nb::object remembered;
  Known::here().look(address, [&](const Known::Entry& entry) {
    if (entry.held->location.bytes == location.bytes && entry.tensor != nullptr) {
      remembered = nb::borrow(entry.tensor);
    }
  });
  if (!remembered.is_valid()) return {};
  const nb::object tensor = TorchApi::lock_tensor(remembered);
  TensorForm its;
  std::byte* first = nullptr;
  if (!tensor.is_valid() || !read_sizes(tensor, its, first) || first == nullptr) return {};
  const std::uint64_t offset = static_cast<std::uint64_t>(form.offset) * form.item_bytes();
  if (first != address + offset || !its.has_sizes_of(form)) return {};
  // One of inference mode would make others of that kind.
  return TorchApi::is_of_inference_mode(tensor) ? nb::object() : TorchApi::beside(tensor);
}

/// A tensor on a new storage, which is remembered. An invalid object where DLPack has no such
/// elements, or another thread has made the storage meanwhile.
nb::object new_tensor_at(const HeapLocation& location, const TensorForm& form) {
  const DType& dtype = kDTypes[form.dtype];
  if (!dtype.is_in_dlpack() || location.bytes % dtype.bytes != 0) return {};
  auto held = std::make_unique<Held>(location);
  const Held& kept = *held;
  const bool whole = is_whole(form, location.bytes);
  nb::object tensor =
      whole ? tensor_over(std::move(held), dtype.dlpack, form.all_sizes(), form.all_strides())
            : elements_over(std::move(held), dtype);
  if (!find(location).is_none()) return {};
  const nb::object storage = TorchApi::storage_of(tensor);
  Known::here().remember(kept.address(), storage, &kept);
  if (whole) return tensor;
  return TorchApi::set(tensor, storage, form.offset, form.all_sizes(), form.all_strides());
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

/// Gives a storage, whose memory is at `from`, that of `held`. False where another thread has moved
/// it meanwhile. For Exchange::kWords.
bool replace_memory(nb::handle storage, const std::byte* from, std::unique_ptr<Held> held) {
  StorageWords words(storage);
  if (words.address() != from) return false;
  Held* const kept = held.release();
  StorageMemory* const before = words.has_fixed_size() ? &kept->memory_before : nullptr;
  const StorageMemory memory = words.replace({kept->address(), release, kept});
  if (before != nullptr) *before = memory;
  Known::here().remember(kept->address(), storage, kept);
  if (before == nullptr) memory.give_back();
  return true;
}

/// The same for Exchange::kTorchs.
bool exchange_memory(nb::handle storage, const std::byte* from, std::unique_ptr<Held> held) {
  Held& kept = *held;
  nb::object other = bytes_over(std::move(held));
  const nb::object its_storage = TorchApi::storage_of(other);
  if (reinterpret_cast<std::byte*>(TorchApi::address_of(storage)) != from) return false;
  python::exchange_memory(storage, its_storage);
  const bool had_fixed_size = call<"resizable">(its_storage).ptr() != Py_True;
  if (had_fixed_size) kept.before = other.release().ptr();
  Known::here().remember(kept.address(), storage, &kept);
  return true;
}

}  // namespace

std::optional<HeapLocation> known_location(const std::byte* address, std::uint64_t least_bytes) {
  HeapLocation location;
  ipc::Offset block = 0;
  Known::here().look(address, [&](const Known::Entry& entry) {
    const HeapLocation& known = entry.held->location;
    if (known.bytes < least_bytes) return;
    block = known.block.offset();
    location.start = known.start;
    location.bytes = known.bytes;
  });
  if (block == 0) return std::nullopt;
  location.block = ipc::Block::acquire(block);
  return location;
}

std::optional<HeapLocation> location_of(nb::handle storage) {
  return location_at(reinterpret_cast<std::byte*>(TorchApi::address_of(storage)),
                     bytes_of(storage));
}

std::optional<HeapLocation> move_to_heap(nb::handle storage, std::uint64_t bytes) {
  const Exchange kind = exchange_kind();
  for (;;) {
    const std::byte* const from = kind == Exchange::kWords
                                      ? StorageWords(storage).address()
                                      : reinterpret_cast<std::byte*>(TorchApi::address_of(storage));
    if (auto location = location_at(from, bytes)) return location;
    if (kind == Exchange::kNone) return std::nullopt;
    std::unique_ptr<Held> held = copied(from, bytes);
    HeapLocation location = held->location;
    const bool moved = kind == Exchange::kWords ? replace_memory(storage, from, std::move(held))
                                                : exchange_memory(storage, from, std::move(held));
    if (moved) return location;
  }
}

std::uint64_t bytes_of(nb::handle storage) {
  return exchange_kind() == Exchange::kWords ? StorageWords(storage).bytes()
                                             : TorchApi::bytes_of(storage);
}

bool is_shared_by_torch(nb::handle storage) {
  if (exchange_kind() == Exchange::kWords && StorageWords(storage).is_of_allocator()) return false;
  return call<"is_shared">(storage).ptr() == Py_True;
}

nb::object storage_at(HeapLocation location) {
  if (nb::object storage = find(location); !storage.is_none()) return storage;
  auto held = std::make_unique<Held>(location);
  const Held& kept = *held;
  nb::object made = TorchApi::storage_of(bytes_over(std::move(held)));
  // Another thread may have made it meanwhile.
  if (nb::object storage = find(location); !storage.is_none()) return storage;
  Known::here().remember(kept.address(), made, &kept);
  return made;
}

void remember_tensor(const HeapLocation& location, nb::handle tensor) {
  Known::here().remember_tensor(location.block.data() + location.start, tensor);
}

nb::object tensor_at(HeapLocation location, const TensorForm& form, bool plain) {
  if (nb::object tensor = beside_remembered(location, form); tensor.is_valid()) return tensor;
  nb::object storage = find(location);
  if (storage.is_none()) {
    if (nb::object tensor = new_tensor_at(location, form); tensor.is_valid()) return tensor;
    storage = storage_at(location);
  }
  nb::object tensor = TorchApi::here().tensor_on(storage, kCpu, form.dtype, form.offset,
                                                 form.all_sizes(), form.all_strides());
  if (plain) remember_tensor(location, tensor);  // it came before, and may come again
  return tensor;
}

}  // namespace shoal::python
