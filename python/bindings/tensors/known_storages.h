// The storages of this process whose memory is ours, so that what comes twice is one storage.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tensors/torch_api.h"
#include "tensors/waiting_for_gil.h"

namespace shoal::python {

/// Storages by `Key`, where their memory lies; each with the `Held` that its memory belongs to. It
/// keeps none of them alive.
///
/// Threads: any; what returns or takes a storage needs the GIL.
/// Fork: a child has the table whole, whichever thread was at it.
template <class Key, class Held>
class KnownStorages {
 public:
  /// Never destroyed: storages are released until the very end of the process.
  static KnownStorages& here() {
    static KnownStorages* const instance = [] {
      static KnownStorages* made = new KnownStorages;
      pthread_atfork([] { made->mutex_.lock(); }, [] { made->mutex_.unlock(); },
                     [] { made->mutex_.unlock(); });
      return made;
    }();
    return *instance;
  }

  /// Makes `storage` the one that is found at `key`, until forget().
  void remember(const Key& key, nanobind::handle storage, const Held* held) {
    const Entry entry{TorchApi::weak(storage), held};
    std::uintptr_t replaced = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto [at, fresh] = entries_.try_emplace(key, entry);
      if (!fresh) replaced = std::exchange(at->second, entry).storage;
    }
    if (replaced != 0) TorchApi::here().free(replaced);
    WaitingForGil::let_go();
  }

  /// Unless another storage was remembered there since. Without the GIL.
  void forget(const Key& key, const Held* held) noexcept {
    std::uintptr_t forgotten = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto at = entries_.find(key);
      if (at == entries_.end() || at->second.held != held) return;
      forgotten = at->second.storage;
      entries_.erase(at);
    }
    WaitingForGil::free_weak(forgotten);
  }

  /// The storage at `key` if it is alive and `fits(held)`; else None.
  template <class Fits>
  nanobind::object find(const Key& key, Fits fits) {
    std::uintptr_t weak = 0;
    const auto note = [&](const Held& held, std::uintptr_t storage) {
      if (fits(held)) weak = storage;
    };
    look(key, note);
    // The reference is freed with the GIL, thus later.
    return weak == 0 ? nanobind::none() : TorchApi::here().lock(weak);
  }

  /// `note(held, weak reference)` for the storage at `key`, locked; false when there is none.
  template <class Note>
  bool look(const Key& key, Note note) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return false;
    note(*at->second.held, at->second.storage);
    return true;
  }

 private:
  struct Entry {
    std::uintptr_t storage;  // a weak reference
    const Held* held;
  };

  std::mutex mutex_;
  std::unordered_map<Key, Entry> entries_;
};

}  // namespace shoal::python
