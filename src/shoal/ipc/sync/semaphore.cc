#include "shoal/ipc/sync/semaphore.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "shoal/ipc/sync/shared_spin_policy.h"

namespace shoal::ipc {
namespace {

using sync::WaitOutcome;

constexpr std::uint32_t kMaxHolders = 256;
constexpr std::size_t kWordsAt = 64;  // in the block: OwnerDeath, then the semaphore

}  // namespace

Semaphore::Semaphore(std::uint32_t value, std::uint32_t maximum, OwnerDeath on_death) {
  const std::uint32_t holders = on_death == OwnerDeath::kIgnore ? 0 : std::min(value, kMaxHolders);
  const std::size_t bytes = kWordsAt + sync::Semaphore::bytes(holders);
  block_ = Block::allocate(bytes, BlockKind::kSync);
  std::memset(block_.data(), 0, bytes);
  on_death_word() = static_cast<std::uint32_t>(on_death);
  words().init(value, maximum, holders);
}

bool Semaphore::try_acquire() noexcept {
  return words().try_acquire(Owners(*block_.heap()).self());
}

Acquisition Semaphore::acquire(os::Deadline deadline) noexcept {
  const Owners owners(*block_.heap());
  const sync::Owner me = owners.self();
  Acquisition result{WaitOutcome::kReady, 0};
  if (words().try_acquire(me)) return result;
  auto& policy = SharedSpinPolicy::of_holders();
  result.outcome = wait_in_slices(
      deadline, kSlice, [&](os::Deadline until) { return words().acquire(me, policy, until); },
      [&] { return recover(result.dead) && words().try_acquire(me); });
  return result;
}

Acquisition Semaphore::acquire_now() noexcept {
  Acquisition result{WaitOutcome::kReady, 0};
  if (try_acquire()) return result;
  return recover(result.dead) && try_acquire() ? result : Acquisition{};
}

bool Semaphore::recover(pid_t& dead) noexcept {
  const Owners owners(*block_.heap());
  sync::Owner owner = sync::kNobody;
  if (words().recover(owners.liveness(), &owner) == 0) return false;
  dead = owners.pid(owner);
  return true;
}

bool Semaphore::release() noexcept { return words().release(Owners(*block_.heap()).self()); }

std::uint32_t Semaphore::held() const noexcept {
  return words().held(Owners(*block_.heap()).self());
}

OwnerDeath Semaphore::on_death() const noexcept { return static_cast<OwnerDeath>(on_death_word()); }

sync::Semaphore& Semaphore::words() const noexcept {
  return *reinterpret_cast<sync::Semaphore*>(block_.data() + kWordsAt);
}

std::uint32_t& Semaphore::on_death_word() const noexcept {
  return *reinterpret_cast<std::uint32_t*>(block_.data());
}

}  // namespace shoal::ipc
