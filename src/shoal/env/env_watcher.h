// Which environment's code runs, for an engine whose environments may ask where they are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace shoal::env {

/// Follows the environments of one batch of Envs, each by its number in the batch.
///
/// Threads: those that build, reset and step the batch; several at a time.
class EnvWatcher {
 public:
  virtual ~EnvWatcher() = default;

  /// Calls `run`, which runs code of the batch's environments in this thread.
  virtual void watch(const std::function<void()>& run) const = 0;

  /// What environment i is called where it is told of: among those of all batches.
  virtual int number(int i) const noexcept = 0;

  /// Environment i's code runs from here on: within watch(), or while the batch is built.
  virtual void enter(int i) const noexcept = 0;

  /// Environment i's reset, which follows, has this seed: within watch().
  virtual void set_seed(int i, std::uint64_t seed) const noexcept = 0;
};

/// While it lives, `watcher` is given to the batches of Envs that this thread makes. A resource.
class WatchScope {
 public:
  explicit WatchScope(std::shared_ptr<const EnvWatcher> watcher) noexcept;
  ~WatchScope();
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;

  /// The innermost scope's of this thread; nullptr outside of any.
  static std::shared_ptr<const EnvWatcher> watcher() noexcept;

 private:
  const std::shared_ptr<const EnvWatcher> watcher_;
  const WatchScope* const outer_;
};

}  // namespace shoal::env
