// The storages of this process whose memory is ours, so that what comes twice is one storage.
#pragma once

#include <c10/core/StorageImpl.h>
#include <pthread.h>

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace shoal::python {

/// Storages by `Key`, where their memory lies; each with the `Held` that is its data pointer's
/// context. It keeps none of them alive.
///
/// Threads: any.
/// Fork: a child has the table whole, whichever thread was at it.
template <class Key, class Held>
class KnownStorages {
 public:
  using Storage = c10::intrusive_ptr<c10::StorageImpl>;

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

  /// Makes `storage` the one that is found at `key`.
  void remember(const Key& key, const Storage& storage, const Held* held) {
    std::optional<Weak> replaced;  // goes without the lock
    const std::lock_guard lock(mutex_);
    const auto [at, fresh] = entries_.try_emplace(key, Entry{Weak(storage), held});
    if (fresh) return;
    replaced = std::exchange(at->second.storage, Weak(storage));
    at->second.held = held;
  }

  /// Unless another storage was remembered there since.
  void forget(const Key& key, const Held* held) {
    std::optional<Weak> forgotten;  // goes without the lock
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end() || at->second.held != held) return;
    forgotten = std::move(at->second.storage);
    entries_.erase(at);
  }

  /// The storage at `key` if it is alive and `fits(*held)`; else null.
  template <class Fits>
  Storage find(const Key& key, Fits fits) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end() || !fits(*at->second.held)) return {};
    return at->second.storage.lock();
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Entry {
    Weak storage;
    const Held* held;
  };

  std::mutex mutex_;
  std::unordered_map<Key, Entry> entries_;
};

}  // namespace shoal::python
