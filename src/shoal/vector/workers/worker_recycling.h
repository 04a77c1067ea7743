// Workers whose memory has grown, and how their environments move to a successor.
//
// A worker over its limit gets a younger incarnation beside it, in which the session's environments
// are built while the old ones go on. Then the old worker is drained: an environment takes no further
// order once its episode has ended. When all are drained, the old worker hands their generators over,
// and the session leaves it. Each session of a shared pool moves by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/vector/workers/worker_slot.h"

namespace shoal::vector {

class WorkerSet;

/// Threads: the caller's.
/// Death: of a successor: a warning, and another one later. Of a worker that is to go: a fault like
/// any, after which the session goes on in the successor.
/// Processes: the caller's.
class WorkerRecycling {
 public:
  explicit WorkerRecycling(WorkerSet& set) : set_(set) {}

  /// Now and then: looks at the workers' memory; one over the hard limit is killed, which is a
  /// fault.
  void weigh();
  /// Goes on with every replacement as far as that takes no waiting; true when one is over.
  bool poll();
  /// Whether some replacement is under way.
  bool is_moving() const noexcept { return moving_ > 0; }
  /// Whether orders wait for a worker that is about to be replaced.
  bool hands_over() const;
  /// The successor, which the session enters where its worker has died.
  WorkerPool::Entry take_successor(WorkerSlot& slot);
  /// It is not needed any more.
  void forget(WorkerSlot& slot);
  /// Tells what those that were replaced have raised, and leaves them.
  void close(WorkerPool& pool, os::Deadline deadline);

 private:
  /// A process that was replaced, and has not yet said what its environments raised when they were
  /// closed.
  struct Leaving {
    std::string name;
    Incarnation incarnation;
    os::Deadline deadline;
  };

  void begin(WorkerSlot& slot);
  bool other_session_moves(const WorkerSlot& slot) const;
  void warn(WorkerSlot& slot, const char* why);
  void drop(WorkerSlot& slot, const char* why);
  void poll_opening(WorkerSlot& slot);
  void poll_draining(WorkerSlot& slot);
  bool poll_handing(WorkerSlot& slot);
  bool take_handed(WorkerSlot& slot, os::Deadline until);
  void change_over(WorkerSlot& slot, std::vector<std::byte> handed);
  bool has_left(WorkerPool& pool, const Leaving& old, os::Deadline until);

  WorkerSet& set_;
  int moving_ = 0;
  std::uint64_t weighed_ns_ = 0;
  bool weighed_ = false;  // and who is over the limit not yet dealt with
  std::vector<Leaving> leaving_;
};

}  // namespace shoal::vector
