// What A3C's actors and their learner share: parameters and statistics, counts, and what each actor
// tells of itself; in one arena.
//
// The bytes of the arena, each part on a line of 128 of its own:
//
//   header      A3cHeader
//   board       A3cBoard: counts of all, and the order to all
//   lines       one an actor: positions of its ring (SpscIndices), signs of life, its totals and
//               its reward normaliser (VersionedSlots each), the entries of its ring of finished
//               episodes
//   floats      parameters, then each average of the optimiser; two floats a word
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "shoal/collect/episode_stats.h"
#include "shoal/collect/running_moments.h"
#include "shoal/learn/optimizer/shared_optimizer.h"
#include "shoal/os/fd.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/spsc_indices.h"
#include "shoal/sync/versioned_slots.h"
#include "shoal/sync/wake_word.h"

namespace shoal::learn {

inline constexpr std::uint32_t kA3cArenaVersion = 3;

struct A3cHeader {
  char magic[8];  // "SHOALA3C"
  std::uint32_t version;
  std::uint32_t actors;
  std::uint64_t floats;  // of the parameters, and of each average
  std::uint32_t averages;
  std::uint32_t unused;
};
static_assert(sizeof(A3cHeader) == 32 && std::is_trivially_copyable_v<A3cHeader>);

/// Threads, processes: any count, the learner orders and waits.
/// Memory ordering: counts are relaxed: nothing is read on the strength of them, but for finish() and
/// finished_steps(). Orders and progress are waited for by the wake words.
/// Death: what was counted stays; what was begun is given back by give_back().
struct A3cBoard {
  enum class Order : std::uint32_t { kPause, kGo, kEnd };

  sync::SystemAtomics::Word64 begun;    // steps of rollouts that were learned from, or will be
  sync::SystemAtomics::Word64 steps;    // of environments, of rollouts that were learned from
  sync::SystemAtomics::Word64 updates;  // rollouts that were learned from
  sync::SystemAtomics::Word64 optimizer_steps;  // that were begun
  sync::SystemAtomics::Word64 wake_at;          // who makes this update wakes the learner
  sync::WakeWord progress;                      // the learner waits here
  sync::WakeWord orders;                        // actors that pause, or have no room, wait here
  sync::SystemAtomics::Word order;

  /// Begins a rollout of so many steps, unless those that are begun already make `total`: where no
  /// actor has died, whoever sees `total` steps finished sees that no rollout is under way.
  bool begin(std::int64_t rollout, std::int64_t total) noexcept;
  struct Made {
    std::int64_t steps;
    std::uint64_t updates;
  };
  /// It was learned from. Returns what all have made, with it.
  Made finish(std::int64_t rollout) noexcept;
  /// Nobody will learn from it: who waits for room may make another.
  void give_back(std::int64_t rollout) noexcept;
  /// Of updates that are read afterwards, those of these steps are seen.
  std::int64_t finished_steps() const noexcept {
    return static_cast<std::int64_t>(steps.load(std::memory_order_acquire));
  }

  Order current_order() const noexcept {
    return static_cast<Order>(order.load(std::memory_order_relaxed));  // as the counts
  }
  void give_order(Order next) noexcept {
    order.store(static_cast<std::uint32_t>(next), std::memory_order_relaxed);
    orders.change_and_wake_all();
  }
};

/// Sums of what an actor's updates measured; of all that had its place.
struct ActorTotals {
  std::int64_t updates = 0;
  std::int64_t explained = 0;  // updates whose explained variance is a number
  double policy_loss = 0;
  double value_loss = 0;
  double entropy = 0;
  double loss = 0;
  double grad_norm = 0;
  double explained_variance = 0;
  double lag = 0;  // updates of others between its weights and its own update
  double collect_seconds = 0;
  double update_seconds = 0;
  double learning_rate = 0;  // the last one, no sum

  ActorTotals& operator+=(const ActorTotals& more) noexcept;
  ActorTotals& operator-=(const ActorTotals& less) noexcept;
};

/// One actor's line; a view.
///
/// Threads, processes: one actor writes, the learner reads.
/// Death: of the actor: totals and moments are of its last update, and episodes those that it
/// published; a successor goes on behind all three. The steps that it had under way are given back to
/// the board.
class ActorLine {
 public:
  static constexpr std::uint32_t kEpisodes = 256;

  struct Entry {
    double episode_return;
    std::int64_t length;
    std::int64_t env;
  };

  static std::size_t bytes() noexcept;
  ActorLine(const shm::Arena& arena, std::size_t offset);

  /// Actor: it has its environments, has stepped them, or waits. Learner: how often an actor has said
  /// so since forget_signs().
  void give_sign() noexcept { signs_->store(signs() + 1, std::memory_order_relaxed); }
  std::uint64_t signs() const noexcept { return signs_->load(std::memory_order_relaxed); }
  void forget_signs() noexcept { signs_->store(0, std::memory_order_relaxed); }

  /// Steps of the rollout that its actor has begun on the board; 0: of none. Set before begin() and
  /// cleared after finish(): a death between gives back what is not missing, which makes a run a
  /// rollout longer. The other way round would leave it without an end.
  void set_under_way(std::int64_t rollout) noexcept {
    under_way_->store(static_cast<std::uint64_t>(rollout), std::memory_order_relaxed);
  }
  std::int64_t under_way() const noexcept {
    return static_cast<std::int64_t>(under_way_->load(std::memory_order_relaxed));
  }

  /// Zeros before the first.
  ActorTotals totals() const;
  void set_totals(const ActorTotals& totals);

  /// The moments of its reward normaliser, of one element; left as they are before the first. The
  /// learner may write them before there is an actor.
  void get_rewards(collect::RunningMoments& into) const;
  void set_rewards(const collect::RunningMoments& rewards);

  /// Actor: publishes as many as there is room for, and returns how many.
  std::size_t put(std::span<const collect::Episode> episodes) noexcept;
  /// Learner: appends what was published since the last call.
  void take(std::vector<collect::Episode>& into);

 private:
  sync::SpscIndices* indices_;
  sync::SystemAtomics::Word64* signs_;
  sync::SystemAtomics::Word64* under_way_;
  sync::VersionedSlots totals_;
  sync::VersionedSlots rewards_;
  Entry* entries_;
};

/// A resource; of each process its own mapping.
class A3cArena {
 public:
  struct Shape {
    int actors = 1;
    std::size_t floats = 0;
    std::size_t averages = 0;
  };

  /// All zeros, and the order is to pause. Throws SystemError when memory is short.
  static A3cArena create(const Shape& shape);
  /// That of another process. Throws Error when it is none, or has another version or shape of
  /// parameters.
  static A3cArena attach(os::Fd fd, std::size_t floats, std::size_t averages);

  int fd() const noexcept { return arena_.fd(); }
  int actors() const noexcept { return shape_.actors; }
  A3cBoard& board() const noexcept { return *board_; }
  ActorLine line(int actor) const;
  SharedParameters parameters() const;

 private:
  A3cArena(shm::Arena arena, const Shape& shape);

  shm::Arena arena_;
  Shape shape_;
  A3cBoard* board_;
};

}  // namespace shoal::learn
