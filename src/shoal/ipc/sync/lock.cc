#include "shoal/ipc/sync/lock.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

#include "shoal/ipc/sync/shared_spin_policy.h"

namespace shoal::ipc {
namespace {

using sync::Owner;
using sync::WaitOutcome;

/// The number of this thread in this process; no other thread ever has it.
std::uint64_t thread_number() noexcept {
  static std::atomic<std::uint32_t> last{0};
  thread_local const std::uint32_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

/// The number of this thread in the family.
std::uint64_t thread_name(Owner self) noexcept {
  return std::uint64_t{self} << 32 | thread_number();
}

Owner self_of(const Block& block) noexcept { return Owners(*block.heap()).self(); }

}  // namespace

Lock::Lock(bool recursive, OwnerDeath on_death)
    : block_(Block::allocate(sizeof(Words), BlockKind::kSync)) {
  auto* words = new (block_.data()) Words{};
  words->recursive = recursive ? 1 : 0;
  words->on_death = static_cast<std::uint32_t>(on_death);
}

bool Lock::try_acquire() noexcept {
  if (recursive() && is_mine()) {
    words().depth.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  if (!words().word.try_acquire(self_of(block_))) return false;
  have(false);
  return true;
}

Acquisition Lock::acquire_now() noexcept {
  Acquisition result{WaitOutcome::kReady, 0};
  if (try_acquire()) return result;
  if (!recover(result.dead)) return {};
  have(true);
  return result;
}

Acquisition Lock::acquire(os::Deadline deadline) noexcept {
  Acquisition result{WaitOutcome::kReady, 0};
  if (try_acquire()) return result;
  const Owner me = self_of(block_);
  auto& policy = SharedSpinPolicy::of_holders();
  bool recovered = false;
  result.outcome = wait_in_slices(
      deadline, kSlice, [&](os::Deadline until) { return words().word.acquire(me, policy, until); },
      [&] { return recovered = recover(result.dead); });
  if (result.outcome == WaitOutcome::kReady) have(recovered);
  return result;
}

bool Lock::recover(pid_t& dead) noexcept {
  const Owners owners(*block_.heap());
  const Owner owner = words().word.owner();
  if (owner == sync::kNobody || on_death() == OwnerDeath::kIgnore || owners.lives(owner)) {
    return false;
  }
  const pid_t known = owners.pid(owner);
  const pid_t noted = words().pid.load(std::memory_order_relaxed);
  if (!words().word.recover(owner, owners.self())) return false;
  dead = known != -1 || noted == 0 ? known : noted;
  return true;
}

void Lock::have(bool recovered) noexcept {
  // Relaxed, here and below: written by who holds the lock, and compared by it alone; to others
  // they are hints.
  const Owner me = self_of(block_);
  Words& mine = words();
  mine.thread.store(thread_name(me), std::memory_order_relaxed);
  mine.depth.store(1, std::memory_order_relaxed);
  mine.pid.store(Owners(*block_.heap()).pid(me), std::memory_order_relaxed);
  mine.recovered.store(recovered ? 1 : 0, std::memory_order_relaxed);
}

ReleaseOutcome Lock::release() noexcept {
  Words& mine = words();
  if (recursive()) {
    if (!is_mine()) return ReleaseOutcome::kNotOwner;
    if (mine.depth.load(std::memory_order_relaxed) > 1) {
      mine.depth.fetch_sub(1, std::memory_order_relaxed);
      return ReleaseOutcome::kReleased;
    }
  } else if (is_free()) {
    return ReleaseOutcome::kFree;
  }
  // Before the word is released: the next owner's other threads must not find their number here.
  mine.thread.store(0, std::memory_order_relaxed);
  return mine.word.release() ? ReleaseOutcome::kReleased : ReleaseOutcome::kFree;
}

std::uint32_t Lock::release_all() noexcept {
  const std::uint32_t depth = words().depth.exchange(1, std::memory_order_relaxed);
  static_cast<void>(release());
  return depth;
}

void Lock::restore_depth(std::uint32_t depth) noexcept {
  words().depth.store(depth, std::memory_order_relaxed);
}

bool Lock::is_mine() const noexcept {
  const Owner me = self_of(block_);
  return words().word.owner() == me &&
         words().thread.load(std::memory_order_relaxed) == thread_name(me);
}

bool Lock::is_this_process() const noexcept { return words().word.owner() == self_of(block_); }
bool Lock::is_free() const noexcept { return words().word.owner() == sync::kNobody; }

std::uint32_t Lock::depth() const noexcept {
  return is_free() ? 0 : words().depth.load(std::memory_order_relaxed);
}

bool Lock::recovered() const noexcept {
  return !is_free() && words().recovered.load(std::memory_order_relaxed) != 0;
}

}  // namespace shoal::ipc
