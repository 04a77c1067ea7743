#include "tensors/storage_exchange.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tensors/calls.h"
#include "tensors/torch_api.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {

// Where the words lie in a c10::StorageImpl of torch 2.6 to 2.15.
namespace {

constexpr std::size_t kMemory = 16;
static_assert(sizeof(StorageMemory) == 24);
constexpr std::size_t kSize = 48;
constexpr std::size_t kResizable = 57;

/// The first release whose words were not compared with these.
constexpr const char* kUnknownRelease = "2.16";

/// That of torch's allocator for the CPU, when the words are proved.
void (*deleter_of_allocator)(void*) = nullptr;

template <class T>
T word_at(const std::byte* words, std::size_t place) {
  T word;
  std::memcpy(&word, words + place, sizeof word);
  return word;
}

}  // namespace

StorageWords::StorageWords(nb::handle storage)
    : words_(reinterpret_cast<std::byte*>(to_address(field<"_cdata">(storage)))) {}

StorageMemory StorageWords::memory() const noexcept {
  return word_at<StorageMemory>(words_, kMemory);
}

std::byte* StorageWords::address() const noexcept { return word_at<std::byte*>(words_, kMemory); }

std::uint64_t StorageWords::bytes() const noexcept { return word_at<std::uint64_t>(words_, kSize); }

bool StorageWords::has_fixed_size() const noexcept { return words_[kResizable] == std::byte{0}; }

bool StorageWords::is_of_allocator() const noexcept {
  return memory().deleter == deleter_of_allocator;
}

StorageMemory StorageWords::replace(const StorageMemory& other) noexcept {
  const StorageMemory before = memory();
  std::memcpy(words_ + kMemory, &other, sizeof other);
  words_[kResizable] = std::byte{0};
  return before;
}

void exchange_words(nb::handle one, nb::handle other) {
  std::byte* const a = StorageWords(one).words_;
  std::byte* const b = StorageWords(other).words_;
  std::swap_ranges(a + kMemory, a + kMemory + sizeof(StorageMemory), b + kMemory);
  std::swap(a[kResizable], b[kResizable]);
}

/// Whether the words of a storage are what torch says of it.
bool words_agree(nb::handle storage) {
  const StorageWords words(storage);
  if (words.words_ == nullptr) return false;
  const auto resizable = word_at<std::uint8_t>(words.words_, kResizable);
  return reinterpret_cast<std::uintptr_t>(words.address()) == TorchApi::address_of(storage) &&
         words.bytes() == TorchApi::bytes_of(storage) &&
         resizable == (call<"resizable">(storage).ptr() == Py_True ? 1 : 0);
}

namespace {

/// Memory of ours for a storage, which tells when it is given back.
struct Sample {
  static constexpr std::size_t kBytes = 72;

  std::array<std::byte, kBytes> bytes{};
  std::array<std::int64_t, 1> size{kBytes}, stride{1};
  dlpack::ManagedTensor managed;
  int given_back = 0;

  nb::object storage() {
    constexpr dlpack::DataType kByte{dlpack::TypeCode::kUInt, 8, 1};
    managed.tensor = {bytes.data(), {}, 1, kByte, size.data(), stride.data(), 0};
    managed.context = this;
    managed.deleter = [](dlpack::ManagedTensor* self) {
      ++static_cast<Sample*>(self->context)->given_back;
    };
    return TorchApi::storage_of(TorchApi::here().tensor_over(managed));
  }

  StorageMemory memory() {
    return {bytes.data(), [](void* self) { ++static_cast<Sample*>(self)->given_back; }, this};
  }
};

nb::object storage_of_torch() { return TorchApi::here().storage_type()(Sample::kBytes); }

bool has(nb::handle storage, std::uintptr_t address, bool resizable, int first) {
  return TorchApi::address_of(storage) == address &&
         call<"resizable">(storage).ptr() == (resizable ? Py_True : Py_False) &&
         TorchApi::bytes_of(storage) == Sample::kBytes && to_int(storage[0]) == first;
}

using Way = void (*)(nb::handle, nb::handle);

/// Exchanges a storage over memory of ours and one of torch's, and looks whether all is as it must
/// be, to the end of both. A sample for which it is not stays for ever: what storages of an unknown
/// kind do with it is not known.
bool is_proved(Way way) {
  auto* const sample = new Sample;
  nb::object ours = sample->storage();
  nb::object theirs = storage_of_torch();
  if (way == exchange_words && !(words_agree(ours) && words_agree(theirs))) return false;
  const std::uintptr_t our_address = TorchApi::address_of(ours);
  const std::uintptr_t their_address = TorchApi::address_of(theirs);
  std::memset(reinterpret_cast<void*>(their_address), 7, Sample::kBytes);
  way(ours, theirs);
  if (!has(ours, their_address, true, 7) || !has(theirs, our_address, false, 0)) return false;
  if (sample->given_back != 0) return false;
  ours.reset();
  if (sample->given_back != 0) return false;
  theirs.reset();
  if (sample->given_back != 1) return false;
  delete sample;
  return true;
}

/// Whether the second word is a function, and the third what it is called with: torch's allocator
/// frees by the address.
bool is_in_order(nb::handle storage) {
  const StorageMemory memory = StorageWords(storage).memory();
  Dl_info function;
  return memory.context == memory.address && memory.deleter != nullptr &&
         ::dladdr(reinterpret_cast<void*>(memory.deleter), &function) != 0 &&
         function.dli_fname != nullptr;
}

/// The same of one storage, whose memory is replaced by ours.
bool replacing_is_proved() {
  auto* const sample = new Sample;
  nb::object storage = storage_of_torch();
  if (!words_agree(storage) || !is_in_order(storage)) return false;
  deleter_of_allocator = StorageWords(storage).memory().deleter;
  StorageWords(storage).replace(sample->memory()).give_back();
  if (!has(storage, reinterpret_cast<std::uintptr_t>(sample->bytes.data()), false, 0)) return false;
  if (sample->given_back != 0) return false;
  storage.reset();
  if (sample->given_back != 1) return false;
  delete sample;
  return true;
}

void exchange_by_torch(nb::handle one, nb::handle other) { call<"_swap_data_ptr_">(one, other); }

Exchange find_kind() {
  const bool has_function =
      !nb::getattr(TorchApi::here().storage_type(), "_swap_data_ptr_", nb::none()).is_none();
  const nb::object version = nb::module_::import_("torch").attr("__version__");
  const bool is_known =
      PyObject_RichCompareBool(version.ptr(), nb::str(kUnknownRelease).ptr(), Py_LT) == 1;
  if ((is_known || !has_function) && is_proved(exchange_words) && replacing_is_proved()) {
    return Exchange::kWords;
  }
  return has_function && is_proved(exchange_by_torch) ? Exchange::kTorchs : Exchange::kNone;
}

}  // namespace

Exchange exchange_kind() {
  // Found twice, by two threads, does no harm; a lock around calls of Python would.
  static std::optional<Exchange> kind;
  if (!kind) kind = find_kind();
  return *kind;
}

void exchange_memory(nb::handle one, nb::handle other) {
  (exchange_kind() == Exchange::kWords ? exchange_words : exchange_by_torch)(one, other);
}

}  // namespace shoal::python
