#include "shoal/env/env_watcher.h"

#include <utility>

namespace shoal::env {
namespace {

thread_local const WatchScope* innermost = nullptr;

}  // namespace

WatchScope::WatchScope(std::shared_ptr<const EnvWatcher> watcher) noexcept
    : watcher_(std::move(watcher)), outer_(std::exchange(innermost, this)) {}

WatchScope::~WatchScope() { innermost = outer_; }

std::shared_ptr<const EnvWatcher> WatchScope::watcher() noexcept {
  return innermost == nullptr ? nullptr : innermost->watcher_;
}

}  // namespace shoal::env
