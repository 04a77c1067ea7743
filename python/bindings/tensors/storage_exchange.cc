#include "tensors/storage_exchange.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "tensors/calls.h"
#include "tensors/torch_api.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

/// Where the words lie in a storage of torch 2.6 to 2.11 (c10::StorageImpl).
constexpr std::size_t kMemory = 16;  // address, and the two words by which it is given back
constexpr std::size_t kMemoryBytes = 3 * sizeof(void*);
constexpr std::size_t kSize = 48;
constexpr std::size_t kResizable = 57;

std::byte* words_of(nb::handle storage) {
  return reinterpret_cast<std::byte*>(to_address(attribute<"_cdata">(storage)));
}

template <class T>
T word_at(const std::byte* words, std::size_t place) {
  T word;
  std::memcpy(&word, words + place, sizeof word);
  return word;
}

void exchange_words(nb::handle one, nb::handle other) {
  std::byte* const a = words_of(one);
  std::byte* const b = words_of(other);
  std::array<std::byte, kMemoryBytes> memory;
  std::memcpy(memory.data(), a + kMemory, kMemoryBytes);
  std::memcpy(a + kMemory, b + kMemory, kMemoryBytes);
  std::memcpy(b + kMemory, memory.data(), kMemoryBytes);
  std::swap(a[kResizable], b[kResizable]);
}

/// Whether the words of a storage are what torch says of it.
bool agrees(nb::handle storage) {
  const std::byte* const words = words_of(storage);
  if (words == nullptr) return false;
  const auto address = to_address(call<"data_ptr">(storage));
  const auto bytes = to_address(call<"nbytes">(storage));
  const bool resizable = call<"resizable">(storage).ptr() == Py_True;
  return word_at<std::uintptr_t>(words, kMemory) == address &&
         word_at<std::uint64_t>(words, kSize) == bytes &&
         word_at<std::uint8_t>(words, kResizable) == (resizable ? 1 : 0);
}

/// Memory of ours for a storage, which tells when it is given back.
struct Sample {
  static constexpr std::size_t kBytes = 72;

  std::array<std::byte, kBytes> bytes{};
  std::array<std::int64_t, 1> size{kBytes}, stride{1};
  dlpack::ManagedTensor managed;
  int given_back = 0;

  nb::object storage() {
    constexpr dlpack::DataType kBytesType{dlpack::TypeCode::kUInt, 8, 1};
    managed.tensor = {bytes.data(), {}, 1, kBytesType, size.data(), stride.data(), 0};
    managed.context = this;
    managed.deleter = [](dlpack::ManagedTensor* self) {
      ++static_cast<Sample*>(self->context)->given_back;
    };
    return call<"untyped_storage">(TorchApi::here().tensor_over(managed));
  }
};

using Way = void (*)(nb::handle, nb::handle);

/// Exchanges a storage over memory of ours and one of torch's, and looks whether all is as it must
/// be, to the end of both. The sample stays where it is not: what storages of an unknown kind do
/// with it is not known.
bool is_proved(Way way) {
  auto* const sample = new Sample;
  nb::object ours = sample->storage();
  nb::object theirs = TorchApi::here().storage_type()(Sample::kBytes);
  if (way == exchange_words && !(agrees(ours) && agrees(theirs))) return false;
  const nb::object our_address = call<"data_ptr">(ours), their_address = call<"data_ptr">(theirs);
  std::memset(reinterpret_cast<void*>(to_address(their_address)), 7, Sample::kBytes);
  way(ours, theirs);
  const bool exchanged =
      call<"data_ptr">(ours).equal(their_address) && call<"data_ptr">(theirs).equal(our_address) &&
      call<"resizable">(ours).ptr() == Py_True && call<"resizable">(theirs).ptr() == Py_False &&
      to_int(ours[0]) == 7 && to_int(theirs[0]) == 0;
  if (!exchanged || sample->given_back != 0) return false;
  ours.reset();
  if (sample->given_back != 0) return false;
  theirs.reset();
  if (sample->given_back != 1) return false;
  delete sample;
  return true;
}

void exchange_by_torch(nb::handle one, nb::handle other) { call<"_swap_data_ptr_">(one, other); }

Exchange find_kind() {
  const nb::handle type = TorchApi::here().storage_type();
  const bool has_function = !nb::getattr(type, "_swap_data_ptr_", nb::none()).is_none();
  if (has_function && is_proved(exchange_by_torch)) return Exchange::kTorchs;
  return is_proved(exchange_words) ? Exchange::kWords : Exchange::kNone;
}

}  // namespace

Exchange exchange_kind() {
  // Found twice, by two threads, does no harm; a lock around calls of Python would.
  static std::optional<Exchange> kind;
  if (!kind) kind = find_kind();
  return *kind;
}

void exchange_memory(nb::handle one, nb::handle other) {
  (exchange_kind() == Exchange::kTorchs ? exchange_by_torch : exchange_words)(one, other);
}

}  // namespace shoal::python
