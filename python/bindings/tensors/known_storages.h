// The storages of this process whose memory is ours, so that what comes twice is one storage.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tensors/torch_api.h"
#include "tensors/waiting_for_gil.h"

namespace shoal::python {

/// Storages by `Key`, where their memory lies; each with the `Held` that its memory belongs to, and
/// perhaps a tensor on it. It keeps none of them alive.
///
/// Threads: any; what returns or takes an object of Python needs the GIL.
/// Fork: a child has the table whole, whichever thread was at it.
template <class Key, class Held>
class KnownStorages {
 public:
  struct Entry {
    const Held* held;
    std::uintptr_t storage;      // a weak reference
    PyObject* tensor = nullptr;  // a weak reference; nullptr: none
  };

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
    const Entry entry{held, TorchApi::weak(storage)};
    std::optional<Entry> replaced;
    {
      const std::lock_guard lock(mutex_);
      const auto [at, fresh] = entries_.try_emplace(key, entry);
      if (!fresh) replaced = std::exchange(at->second, entry);
    }
    if (replaced) let_go(*replaced);
    WaitingForGil::let_go();
  }

  /// Unless another storage was remembered there since. Without the GIL.
  void forget(const Key& key, const Held* held) noexcept {
    Entry forgotten;
    {
      const std::lock_guard lock(mutex_);
      const auto at = entries_.find(key);
      if (at == entries_.end() || at->second.held != held) return;
      forgotten = at->second;
      entries_.erase(at);
    }
    let_go(forgotten);
  }

  /// The storage at `key` if it is alive and `fits(held)`; else None.
  template <class Fits>
  nanobind::object find(const Key& key, Fits fits) {
    std::uintptr_t weak = 0;
    look(key, [&](const Entry& entry) {
      if (fits(*entry.held)) weak = entry.storage;
    });
    // The reference is freed with the GIL, thus later.
    return weak == 0 ? nanobind::none() : TorchApi::here().lock(weak);
  }

  /// `note(entry)` for what is at `key`, locked; nothing where there is none.
  template <class Note>
  void look(const Key& key, Note note) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at != entries_.end()) note(std::as_const(at->second));
  }

  /// Makes `tensor` the one that the entry at `key` has.
  void remember_tensor(const Key& key, nanobind::handle tensor) {
    PyObject* reference = PyWeakref_NewRef(tensor.ptr(), nullptr);
    if (reference == nullptr) throw nanobind::python_error();
    {
      const std::lock_guard lock(mutex_);
      const auto at = entries_.find(key);
      if (at != entries_.end()) std::swap(at->second.tensor, reference);
    }
    Py_XDECREF(reference);
  }

 private:
  static void let_go(const Entry& entry) noexcept {
    WaitingForGil::free_weak(entry.storage);
    if (entry.tensor != nullptr) WaitingForGil::decref_some_time(entry.tensor);
  }

  std::mutex mutex_;
  std::unordered_map<Key, Entry> entries_;
};

}  // namespace shoal::python
