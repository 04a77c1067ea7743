// What a WorkerSet wants of the vector environment whose workers it keeps: how environments are
// reached, and what becomes of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "shoal/vector/step/stepper.h"
#include "shoal/vector/workers/pool_messages.h"

namespace shoal::vector {

/// The transport of a vector environment in processes. Workers are counted from 0, those without
/// environments left out.
///
/// Threads: the caller's, but for mark_of().
/// Processes: the caller's.
/// Death: of a worker: its WorkerSet calls what is declared here for it.
class WorkerEngine {
 public:
  /// What a worker is at: whose code it runs (-1: nobody's, or unknown), and since when.
  struct Work {
    int env = -1;
    bool in_reset = false;
    std::uint64_t since_ns = 0;
  };

  /// The segment that workers attach to.
  virtual int segment_fd() const = 0;
  /// `worker` is about to attach. Returns ATTACH's sequence.
  virtual std::uint64_t prepare(int worker) = 0;
  /// `worker` has mail; for a transport that has a bell of its own.
  virtual void ring(int /*worker*/) {}

  /// What `worker` has marked (EnvMarker), from any thread.
  virtual Work mark_of(int worker) const noexcept = 0;
  /// What it is at and may take too long for; nothing where it has nothing to do.
  virtual std::optional<Work> work_of(int worker, std::uint64_t now_ns) = 0;
  /// Whether it has something to do, so that nobody waits for it long when all is closed.
  virtual bool is_busy(int worker) const = 0;
  /// Whether its end may be dealt with now. It may not while a call goes on for which it has done
  /// its part: that is collected first.
  virtual bool may_lose(int /*worker*/) const { return true; }
  /// A message of `worker` that nobody waits for now.
  virtual void keep(int /*worker*/, PoolMessage /*message*/) {}

  /// The environments of `worker` are gone, and it takes no orders until come_back().
  virtual void lose(int worker) = 0;
  /// New ones are there, and attached.
  virtual void come_back(int worker) = 0;
  /// They will not come back.
  virtual void drop(int /*worker*/) {}

  // A worker that is to be replaced between episodes.

  /// From now on an environment of `worker` is drained when its episode ends.
  virtual void begin_drain(int worker) = 0;
  /// Whether none of them is between two orders of one episode.
  virtual bool is_drained(int worker) const = 0;
  /// It stays: they go on.
  virtual void end_drain(int worker) = 0;
  /// Others are in their place, attached, whose first step is a reset: with the generators of those
  /// before them, where these were handed over.
  virtual void replace(int worker, bool keeps_generators) = 0;
  /// How long the caller waits for what is handed over; nothing: it goes on meanwhile.
  virtual std::optional<std::chrono::milliseconds> hand_over_wait() const { return {}; }

 protected:
  ~WorkerEngine() = default;
};

}  // namespace shoal::vector
