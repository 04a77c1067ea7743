#include "tensors/torch_packed.h"

#include <ATen/MapAllocator.h>
#include <c10/core/TensorImpl.h>
#include <libshm.h>

#include <array>
#include <cstring>

#include "acquire_block.h"
#include "shoal/os/error.h"
#include "tensors/torch_device.h"

namespace shoal::python {
namespace {

enum class Kind : std::uint8_t { kTensor = 1, kStorage = 2, kDeviceTensor = 3 };

enum Flags : std::uint8_t {
  kRequiresGrad = 1,
  kParameter = 2,
  kConjugate = 4,
  kNegative = 8,
};

struct Head {
  std::uint64_t heap;
  ipc::Offset block;  // 0: no bytes
  std::uint64_t serial;
  std::uint64_t start;
  std::uint64_t bytes;
  std::int8_t dtype;
  std::uint8_t flags;
  std::uint8_t dims;
  Kind kind;
};
constexpr std::size_t kHeadBytes = 44;
static_assert(offsetof(Head, kind) == kHeadBytes - 1);

constexpr std::size_t kMaxDims = 64;

/// Behind the view of a tensor on a device.
struct Mark {
  ipc::Offset block = 0;  // 0: none
  std::uint64_t serial = 0;
};

bool in_shared_memory_of_torch(const c10::DataPtr& data) {
  return at::MapAllocator::fromDataPtr(data) != nullptr ||
         at::RefcountedMapAllocator::fromDataPtr(data) != nullptr ||
         THManagedMapAllocator::fromDataPtr(data) != nullptr;
}

std::optional<HeapLocation> location_for(c10::StorageImpl& storage, Head& head) {
  head.bytes = storage.nbytes();
  if (head.bytes == 0) return std::nullopt;
  HeapLocation location = move_to_heap(storage);
  head.heap = location.block.heap()->id();
  head.block = location.block.offset();
  head.serial = location.block.serial();
  head.start = location.start;
  return location;
}

void check(bool right) {
  if (!right)
    throw InvalidArgument(
        "these bytes describe no tensor: they are damaged, or of another build of Shoal");
}

/// False when the storage cannot cross.
bool fill_on_device(c10::StorageImpl& storage, Head& head, Mark& mark, Packed& packed) {
  head.kind = Kind::kDeviceTensor;
  head.bytes = storage.nbytes();
  head.start = static_cast<std::uint64_t>(storage.device().index());
  if (head.bytes == 0) return true;
  auto parcel = parcel_of(storage);
  if (!parcel) return false;
  head.start = 0;
  head.heap = parcel->record.heap()->id();
  head.block = parcel->record.offset();
  head.serial = parcel->record.serial();
  packed.blocks.push_back(std::move(parcel->record));
  if (parcel->mark) {
    mark = {parcel->mark.offset(), parcel->mark.serial()};
    packed.blocks.push_back(std::move(parcel->mark));
  }
  return true;
}

c10::intrusive_ptr<c10::StorageImpl> device_storage_of(const Head& head, const Mark& mark) {
  if (head.block == 0) return empty_device_storage(static_cast<int>(head.start));
  DeviceParcel parcel{acquire_block(head.heap, head.block, head.serial), {}};
  if (mark.block != 0) parcel.mark = acquire_block(head.heap, mark.block, mark.serial);
  auto storage = device_storage_of(parcel);
  check(head.bytes == storage->nbytes());
  return storage;
}

Head read_head(std::string_view packed, Kind kind) {
  Head head;
  check(packed.size() >= kHeadBytes);
  std::memcpy(&head, packed.data(), kHeadBytes);
  check(head.kind == kind && head.dims <= kMaxDims && head.dtype >= 0 &&
        head.dtype < static_cast<int>(c10::ScalarType::NumOptions));
  return head;
}

c10::intrusive_ptr<c10::StorageImpl> storage_of(const Head& head) {
  if (head.block == 0) {
    return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                 c10::GetAllocator(c10::DeviceType::CPU), true);
  }
  HeapLocation location{acquire_block(head.heap, head.block, head.serial), head.start};
  check(head.start <= location.block.size() && head.bytes <= location.block.size() - head.start);
  return storage_at(std::move(location), head.bytes);
}

/// Whether a view of this form stays inside of its storage.
bool fits(const Head& head, std::int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides,
          std::size_t item_bytes) {
  std::int64_t last = offset;
  if (offset < 0) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || strides[i] < 0) return false;
    if (sizes[i] == 0) return true;
    std::int64_t reach;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  return static_cast<std::uint64_t>(last) < head.bytes / item_bytes;
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const bool on_cpu = impl->device_type() == c10::DeviceType::CPU;
  return tensor.defined() && (on_cpu || impl->device_type() == c10::DeviceType::CUDA) &&
         impl->layout() == c10::kStrided && !impl->is_nested() && !impl->is_python_dispatch() &&
         !impl->has_symbolic_sizes_strides() && impl->has_storage() &&
         tensor.dim() <= static_cast<std::int64_t>(kMaxDims) &&
         !c10::isQIntType(tensor.scalar_type()) &&
         !(on_cpu &&
           in_shared_memory_of_torch(impl->unsafe_storage().unsafeGetStorageImpl()->data_ptr()));
}

std::optional<Packed> pack(const at::Tensor& tensor, bool parameter) {
  Head head{};
  head.kind = Kind::kTensor;
  head.dtype = static_cast<std::int8_t>(tensor.scalar_type());
  head.dims = static_cast<std::uint8_t>(tensor.dim());
  head.flags = static_cast<std::uint8_t>(
      (tensor.requires_grad() ? kRequiresGrad : 0) | (parameter ? kParameter : 0) |
      (tensor.is_conj() ? kConjugate : 0) | (tensor.is_neg() ? kNegative : 0));
  Packed packed;
  Mark mark;
  auto& storage = *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (storage.device_type() != c10::DeviceType::CPU) {
    if (!fill_on_device(storage, head, mark, packed)) return std::nullopt;
  } else if (auto location = location_for(storage, head)) {
    packed.blocks.push_back(std::move(location->block));
  }
  const std::size_t words = 1 + 2 * std::size_t{head.dims};
  packed.bytes.reserve(kHeadBytes + words * sizeof(std::int64_t) + sizeof mark);
  packed.bytes.resize(kHeadBytes + words * sizeof(std::int64_t));
  char* out = packed.bytes.data();
  std::memcpy(out, &head, kHeadBytes);
  std::array<std::int64_t, 1 + 2 * kMaxDims> view;
  view[0] = tensor.storage_offset();
  for (std::size_t i = 0; i < head.dims; ++i) {
    view[1 + i] = tensor.sizes()[i];
    view[1 + head.dims + i] = tensor.strides()[i];
  }
  std::memcpy(out + kHeadBytes, view.data(), words * sizeof(std::int64_t));
  if (head.kind == Kind::kDeviceTensor) {
    packed.bytes.append(reinterpret_cast<const char*>(&mark), sizeof mark);
  }
  return packed;
}

Packed pack(c10::StorageImpl& storage) {
  Head head{};
  head.kind = Kind::kStorage;
  Packed packed;
  if (auto location = location_for(storage, head))
    packed.blocks.push_back(std::move(location->block));
  packed.bytes.assign(reinterpret_cast<const char*>(&head), kHeadBytes);
  return packed;
}

bool is_on_device(std::string_view packed) {
  return packed.size() >= kHeadBytes &&
         static_cast<Kind>(packed[kHeadBytes - 1]) == Kind::kDeviceTensor;
}

Unpacked unpack(std::string_view packed) {
  const bool on_device = is_on_device(packed);
  const Head head = read_head(packed, on_device ? Kind::kDeviceTensor : Kind::kTensor);
  const std::size_t words = 1 + 2 * std::size_t{head.dims};
  const std::size_t view_end = kHeadBytes + words * sizeof(std::int64_t);
  Mark mark;
  check(packed.size() == view_end + (on_device ? sizeof mark : 0));
  if (on_device) std::memcpy(&mark, packed.data() + view_end, sizeof mark);
  std::array<std::int64_t, 1 + 2 * kMaxDims> view;
  std::memcpy(view.data(), packed.data() + kHeadBytes, words * sizeof(std::int64_t));
  const c10::IntArrayRef sizes(view.data() + 1, head.dims);
  const c10::IntArrayRef strides(view.data() + 1 + head.dims, head.dims);
  const auto dtype = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(head.dtype));
  check(fits(head, view[0], sizes, strides, dtype.itemsize()));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(on_device ? device_storage_of(head, mark) : storage_of(head)),
      c10::DispatchKeySet(on_device ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, view[0]);
  if (head.flags & kConjugate) tensor._set_conj(true);
  if (head.flags & kNegative) tensor._set_neg(true);
  return {std::move(tensor), (head.flags & kRequiresGrad) != 0, (head.flags & kParameter) != 0};
}

c10::intrusive_ptr<c10::StorageImpl> unpack_storage_of(std::string_view packed) {
  return storage_of(read_head(packed, Kind::kStorage));
}

}  // namespace shoal::python
