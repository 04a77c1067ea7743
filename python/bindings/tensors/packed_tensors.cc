#include "tensors/packed_tensors.h"

#include <array>
#include <cstring>
#include <utility>

#include "acquire_block.h"
#include "shoal/os/error.h"
#include "tensors/calls.h"
#include "tensors/device_storages.h"
#include "tensors/heap_storages.h"
#include "tensors/tensor_form.h"
#include "tensors/torch_api.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

enum class Kind : std::uint8_t { kTensor = 1, kStorage = 2, kDeviceTensor = 3 };

enum Flags : std::uint8_t {
  kRequiresGrad = 1,
  kParameter = 2,
  kConjugate = 4,
  kNegative = 8,
  kBits = kConjugate | kNegative,
};

struct Head {
  std::uint64_t heap;
  ipc::Offset block;  // 0: no bytes
  std::uint64_t serial;
  std::uint64_t start;
  std::uint64_t bytes;
  std::uint8_t dtype;  // in kDTypes
  std::uint8_t flags;
  std::uint8_t dims;
  Kind kind;

  void name(const ipc::Block& of) {
    heap = of.heap()->id();
    block = of.offset();
    serial = of.serial();
  }
};
constexpr std::size_t kHeadBytes = 44;
static_assert(offsetof(Head, kind) == kHeadBytes - 1);

constexpr std::size_t kWord = sizeof(std::int64_t);

/// Behind the view of a tensor on a device.
struct Mark {
  ipc::Offset block = 0;  // 0: none
  std::uint64_t serial = 0;
};

void check(bool right) {
  if (!right)
    throw InvalidArgument(
        "these bytes describe no tensor: they are damaged, or of another build of Shoal");
}

std::uint8_t flags_of(nb::handle tensor, const TensorForm& form, bool requires_grad) {
  int flags = 0;
  if (requires_grad) flags |= kRequiresGrad;
  if (TorchApi::here().is_parameter(tensor)) flags |= kParameter;
  if (kDTypes[form.dtype].complex && call<"is_conj">(tensor).ptr() == Py_True) flags |= kConjugate;
  if (call<"is_neg">(tensor).ptr() == Py_True) flags |= kNegative;
  return static_cast<std::uint8_t>(flags);
}

/// Where a tensor's storage lies in the heap, where it is moved; of no bytes; or nothing.
std::optional<HeapLocation> location_for(nb::handle tensor, const TensorForm& form,
                                         const std::byte* first, std::uint8_t flags) {
  std::uint64_t reach = 0;
  if (first != nullptr && form.reach(reach)) {
    const std::byte* const begin =
        first - static_cast<std::uint64_t>(form.offset) * form.item_bytes();
    if (auto known = known_location(begin, reach)) return known;
  }
  const nb::object storage = TorchApi::storage_of(tensor);
  const std::uint64_t bytes = bytes_of(storage);
  if (bytes == 0) return HeapLocation{};
  if (is_shared_by_torch(storage)) return std::nullopt;
  auto location = move_to_heap(storage, bytes);
  if (location && (flags & kBits) == 0) remember_tensor(*location, tensor);  // it may come back
  return location;
}

bool fill_on_cpu(nb::handle tensor, const TensorForm& form, const std::byte* first, Head& head,
                 Packed& packed) {
  auto location = location_for(tensor, form, first, head.flags);
  if (!location) return false;
  head.start = location->start;
  head.bytes = location->bytes;
  if (!location->block) return true;
  head.name(location->block);
  packed.blocks.push_back(std::move(location->block));
  return true;
}

bool fill_on_device(nb::handle tensor, const TensorForm& form, Head& head, Mark& mark,
                    Packed& packed) {
  before_device_tensors();
  const nb::object storage = TorchApi::storage_of(tensor);
  head.kind = Kind::kDeviceTensor;
  head.bytes = bytes_of(storage);
  head.start = static_cast<std::uint64_t>(form.device.index);
  if (head.bytes == 0) return true;
  auto parcel = parcel_of(storage, form.device.index);
  if (!parcel) return false;
  head.start = 0;
  head.name(parcel->record);
  packed.blocks.push_back(std::move(parcel->record));
  if (parcel->mark) {
    mark = {parcel->mark.offset(), parcel->mark.serial()};
    packed.blocks.push_back(std::move(parcel->mark));
  }
  return true;
}

void write_view(const Head& head, const TensorForm& form, std::string& out) {
  const std::size_t words = form.dims * kWord;
  out.resize(kHeadBytes + kWord + 2 * words);
  char* const to = out.data();
  std::memcpy(to, &head, kHeadBytes);
  std::memcpy(to + kHeadBytes, &form.offset, kWord);
  std::memcpy(to + kHeadBytes + kWord, form.sizes.data(), words);
  std::memcpy(to + kHeadBytes + kWord + words, form.strides.data(), words);
}

Head read_head(std::string_view packed) {
  Head head{};
  check(packed.size() >= kHeadBytes);
  std::memcpy(&head, packed.data(), kHeadBytes);
  return head;
}

void read_view(std::string_view packed, const Head& head, TensorForm& form, Mark& mark) {
  const bool on_device = head.kind == Kind::kDeviceTensor;
  check((on_device || head.kind == Kind::kTensor) && head.dims <= kMaxDims &&
        head.dtype < kDTypes.size() && TorchApi::here().has_dtype(head.dtype));
  const std::size_t words = head.dims * kWord;
  const std::size_t end = kHeadBytes + kWord + 2 * words;
  check(packed.size() == end + (on_device ? sizeof mark : 0));
  const char* const from = packed.data() + kHeadBytes;
  form.dtype = head.dtype;
  form.dims = head.dims;
  std::memcpy(&form.offset, from, kWord);
  std::memcpy(form.sizes.data(), from + kWord, words);
  std::memcpy(form.strides.data(), from + kWord + words, words);
  if (on_device) std::memcpy(&mark, packed.data() + end, sizeof mark);
  std::uint64_t reach = 0;
  check(form.reach(reach) && reach <= head.bytes);
}

HeapLocation location_in(const Head& head) {
  HeapLocation location{acquire_block(head.heap, head.block, head.serial), head.start, head.bytes};
  check(head.start <= location.block.size() && head.bytes <= location.block.size() - head.start);
  return location;
}

nb::object tensor_on_cpu(const Head& head, const TensorForm& form) {
  if (head.block != 0) return tensor_at(location_in(head), form, (head.flags & kBits) == 0);
  const TorchApi& torch = TorchApi::here();
  return torch.tensor_on(torch.empty_storage({}), {}, form.dtype, form.offset, form.all_sizes(),
                         form.all_strides());
}

nb::object tensor_on_device(const Head& head, const Mark& mark, TensorForm& form) {
  before_device_tensors();
  nb::object storage;
  form.device.type = dlpack::DeviceType::kCuda;
  if (head.block == 0) {
    form.device.index = static_cast<std::int32_t>(head.start);
    storage = TorchApi::here().empty_storage(form.device);
  } else {
    DeviceParcel parcel{acquire_block(head.heap, head.block, head.serial), {}};
    if (mark.block != 0) parcel.mark = acquire_block(head.heap, mark.block, mark.serial);
    DeviceStorage found = device_storage_of(parcel);
    check(head.bytes == found.bytes);
    form.device.index = found.device;
    storage = std::move(found.storage);
  }
  return TorchApi::here().tensor_on(storage, form.device, form.dtype, form.offset, form.all_sizes(),
                                    form.all_strides());
}

std::optional<Packed> pack_read(nb::handle tensor, bool requires_grad) {
  TensorForm form;
  std::byte* first = nullptr;
  if (!read_form(tensor, form, first)) return std::nullopt;
  Head head{};
  Mark mark;
  Packed packed;
  head.kind = Kind::kTensor;
  head.dtype = form.dtype;
  head.dims = form.dims;
  head.flags = flags_of(tensor, form, requires_grad);
  const bool on_cpu = form.device.type == dlpack::DeviceType::kCpu;
  if (on_cpu ? !fill_on_cpu(tensor, form, first, head, packed)
             : !fill_on_device(tensor, form, head, mark, packed)) {
    return std::nullopt;
  }
  write_view(head, form, packed.bytes);
  if (!on_cpu) packed.bytes.append(reinterpret_cast<const char*>(&mark), sizeof mark);
  return packed;
}

}  // namespace

std::optional<Packed> pack_tensor(nb::handle tensor) {
  if (!TorchApi::here().is_tensor(tensor)) throw nb::type_error("not a torch.Tensor");
  return pack_read(tensor, is_set<"requires_grad">(tensor));
}

std::optional<Packed> pack_plain_tensor(nb::handle tensor) {
  const bool requires_grad = is_set<"requires_grad">(tensor);
  if (requires_grad && !is_true<"is_leaf">(tensor)) return std::nullopt;
  if (!field<"_backward_hooks">(tensor).is_none()) return std::nullopt;
  return pack_read(tensor, requires_grad);
}

std::optional<Packed> pack_storage(nb::handle storage) {
  Head head{};
  head.kind = Kind::kStorage;
  Packed packed;
  if (const std::uint64_t bytes = bytes_of(storage); bytes != 0) {
    TorchApi::address_of(storage);  // what is copied on write becomes its own
    auto location = move_to_heap(storage, bytes);
    if (!location) return std::nullopt;
    head.start = location->start;
    head.bytes = location->bytes;
    head.name(location->block);
    packed.blocks.push_back(std::move(location->block));
  }
  packed.bytes.assign(reinterpret_cast<const char*>(&head), kHeadBytes);
  return packed;
}

nb::object unpack_tensor(std::string_view packed) {
  const Head head = read_head(packed);
  TensorForm form;
  Mark mark;
  read_view(packed, head, form, mark);
  nb::object tensor =
      head.kind == Kind::kTensor ? tensor_on_cpu(head, form) : tensor_on_device(head, mark, form);
  if ((head.flags & kBits) != 0) {
    TorchApi::here().set_bits(tensor, (head.flags & kConjugate) != 0,
                              (head.flags & kNegative) != 0);
  }
  const bool requires_grad = (head.flags & kRequiresGrad) != 0;
  if ((head.flags & kParameter) != 0) return TorchApi::here().parameter(tensor, requires_grad);
  if (requires_grad) nb::setattr(tensor, interned<"requires_grad">(), nb::bool_(true));
  return tensor;
}

nb::object unpack_storage(std::string_view packed) {
  const Head head = read_head(packed);
  check(head.kind == Kind::kStorage && packed.size() == kHeadBytes);
  return head.block == 0 ? TorchApi::here().empty_storage({}) : storage_at(location_in(head));
}

}  // namespace shoal::python
