// The memory of a storage is exchanged: so a storage moves, and all that looks at it follows.
//
// Until 2.11 torch had nothing for that. So the words of the object are exchanged that hold the
// address, and how it is given back: c10::StorageImpl has them at the same places in all releases
// from 2.6 to 2.15. Nothing is taken on trust: before anything of a user's is touched, the places
// are read, and the exchange is made and undone, on storages whose values are known. A newer
// release has the exchange made by torch's own function (UntypedStorage._swap_data_ptr_, from 2.12
// on), as has one whose words are not proved.
//
// Threads: with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shoal::python {

enum class Exchange {
  kWords,   // word by word
  kTorchs,  // by torch's own function
  kNone,    // neither: storages of this torch are of another kind
};

/// How it is done in this process; found once.
Exchange exchange_kind();

/// Exchanges the memory of two storages of one device and size, and whether their size is fixed.
/// Not for kNone.
void exchange_memory(nanobind::handle one, nanobind::handle other);

/// Memory of a storage: where it is, and how it is given back.
struct StorageMemory {
  void* address;
  void (*deleter)(void* context);  // on any thread, with or without the GIL
  void* context;

  void give_back() const {
    if (deleter != nullptr) deleter(context);
  }
};

/// The words of a storage; valid as long as that. For kWords only.
class StorageWords {
 public:
  explicit StorageWords(nanobind::handle storage);

  StorageMemory memory() const noexcept;
  std::byte* address() const noexcept;
  std::uint64_t bytes() const noexcept;
  bool has_fixed_size() const noexcept;
  /// Whether the memory is given back as that of torch's allocator for the CPU.
  bool is_of_allocator() const noexcept;

  /// Puts other memory of as many bytes in the place of the storage's, which is returned, and fixes
  /// the size.
  [[nodiscard]] StorageMemory replace(const StorageMemory& other) noexcept;

 private:
  friend void exchange_words(nanobind::handle one, nanobind::handle other);
  friend bool words_agree(nanobind::handle storage);

  std::byte* words_;
};

}  // namespace shoal::python
