// Which task goes to which worker of a pool, and what is outstanding.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "shoal/ipc/pool/task_job.h"
#include "shoal/ipc/pool/task_segment.h"
#include "shoal/os/process/pidfd.h"
#include "shoal/shm/board.h"

namespace shoal::ipc {

/// The owner's side of a pool; a resource. It starts no processes: its owner starts them, and tells
/// the scheduler.
///
/// Tasks begin in the order in which they were added. A busy worker is given a few tasks in
/// advance, as many as it does in about a millisecond. Those that it has not begun are taken back
/// and given to a worker that has nothing to do.
///
/// Threads: any may add and wait. One must call pump() over and over: results arrive only there.
/// Processes: the pool's owner; each worker has a TaskSlot.
/// Invariants: every task that was added gets exactly one outcome.
/// Death: of a worker: the task that it had begun fails (bury()), tasks that it had not begun go to
/// others, results that it had sent count. Of the owner: the workers leave.
/// Fork: the copy in a forked child does nothing.
class TaskScheduler {
 public:
  struct Event {
    enum Kind : std::uint8_t {
      kDied,      // the process of `slot` has ended: call bury(), then perhaps start another there
      kBroken,    // a worker cannot begin: `bytes` is its initializer's exception
      kNotify,    // the job that was sealed with `ticket` is finished
      kFinished,  // nothing is left to do, and nothing will be
      kNothing,   // woken, or the deadline passed
    } kind = kNothing;
    int slot = -1;
    bool ready = false;    // kDied: it had begun to work
    bool retired = false;  // kDied: it was to leave, having done its quota or been stopped
    bool blamed = false;   // kDied: it had begun a task that has no outcome
    std::uint64_t ticket = 0;
    TaskBytes bytes;
  };

  explicit TaskScheduler(int slots, std::size_t ring_bytes = TaskSegment::kDefaultRingBytes);
  ~TaskScheduler();
  TaskScheduler(const TaskScheduler&) = delete;
  TaskScheduler& operator=(const TaskScheduler&) = delete;

  int segment_fd() const noexcept { return segment_.fd(); }
  int slots() const noexcept { return static_cast<int>(slots_.size()); }

  /// Before the process of a free slot is started. `quota`: tasks that it may do; 0 for any number.
  void prepare(int slot, std::size_t quota);
  /// After the process was started; one that has ended already is a death like any other.
  void occupy(int slot, pid_t pid);
  /// After prepare(): the block that keeps those results of the slot's worker that name blocks of
  /// the heap, until they have arrived. Throws OutOfMemory.
  Block shelf(int slot);
  /// The process could not be started: the slot is free again.
  void vacate(int slot);

  /// Announces a job, whose tasks are then added in any number of calls until seal(). Throws
  /// InvalidState once the scheduler is closed, or in a forked child.
  void open(const std::shared_ptr<TaskJob>& job);
  /// Adds task `index` of an open job. False when the scheduler was stopped: then the task has its
  /// outcome. `held` are the blocks that the payload names; they are held until there is an
  /// outcome.
  bool add(const std::shared_ptr<TaskJob>& job, std::uint32_t index, TaskBytes payload,
           std::vector<Block> held = {});
  /// Puts the outcome of a task that never was sent.
  void put(const std::shared_ptr<TaskJob>& job, TaskJob::Outcome outcome);
  /// The job has `length` tasks, and no more come. With a `ticket` that is not 0 there is a kNotify
  /// once the job is finished.
  void seal(const std::shared_ptr<TaskJob>& job, std::size_t length, std::uint64_t ticket = 0);

  /// Bytes of tasks that no worker has been given, with what they hold.
  std::size_t pending_bytes() const;
  /// Waits until they are at most `bytes`, or nothing will be done any more; false at the deadline.
  [[nodiscard]] bool wait_for_room(std::size_t bytes, os::Deadline deadline) const;

  /// Collects results, hands out tasks and notices deaths, until there is an event for the owner.
  Event pump(os::Deadline deadline);

  /// After kDied: `error` becomes the outcome of the task that the worker had begun, and the slot
  /// is free. Returns whether another worker is wanted there.
  bool bury(int slot, const TaskBytes& error);

  /// Ends a pump() that waits.
  void wake();

  /// open() is refused from here on; workers leave when all tasks are done.
  void close();
  /// No task begins any more, and those without an outcome get `error`.
  void stop(const TaskBytes& error);

 private:
  struct Task {
    std::uint64_t id;
    std::shared_ptr<TaskJob> job;
    std::uint32_t index;
    TaskBytes payload;
    std::vector<Block> held;

    std::size_t weight() const noexcept {
      std::size_t bytes = payload.size();
      for (const Block& block : held) bytes += block.size();
      return bytes;
    }
  };
  struct Sent {
    Task task;
    TaskRecord* record;       // its first
    std::uint32_t end;        // behind the first record, in the ring's count
    std::size_t written = 0;  // bytes of the payload that were put into the ring
    bool is_whole() const noexcept { return written == task.payload.size(); }
  };
  struct Slot {
    enum State : std::uint8_t { kFree, kPrepared, kStarting, kReady, kDead } state = kFree;
    os::PidFd process;
    TaskRing tasks, results;
    std::deque<Sent> sent;  // without an outcome, in the order in which they are done
    std::size_t quota = 0, given = 0;
    bool occupied = false;  // its process is known
    bool began = false;     // it has said that it is ready
    bool stopped = false;
    bool dirty = false;  // its ring has something that its doorbell has not told of
    TaskBytes partial;   // of a result that is still coming
    Block shelf;
    pid_t process_before = 0;  // the last that was there

    bool has_quota() const noexcept { return quota == 0 || given < quota; }
    bool is_idle() const noexcept { return state == kReady && sent.empty() && has_quota(); }
    bool is_occupied() const noexcept {
      return occupied && (state == kStarting || state == kReady);
    }
    bool is_leaving() const noexcept {
      return is_occupied() && (stopped || (!has_quota() && sent.empty()));
    }
  };

  bool is_owner() const noexcept;
  void drain(int index);
  void take_result(int index, const TaskRecord& record);
  static Block from_shelf(const Slot& slot, const TaskBytes& payload);
  void deliver(const std::shared_ptr<TaskJob>& job, TaskJob::Outcome outcome);
  void notify_if_finished(const std::shared_ptr<TaskJob>& job);
  void add_event(Event event);

  void schedule();
  void go_on_sending(Slot& slot);
  bool give(Slot& slot);
  bool has_room(const Slot& slot) const noexcept;
  Slot* idlest() noexcept;
  void rebalance();
  void take_back(Slot& slot, std::size_t count);
  void requeue(std::vector<Task> tasks);
  void ring_dirty() noexcept;

  bool is_begun(const Slot& slot) const noexcept;
  void look_for_deaths();
  bool somebody_leaves() const noexcept;
  bool is_done() const noexcept;
  bool is_finished() const noexcept;

  /// Of the board, in this order; then "worker 0", "worker 1", …: the process in each slot, 0: none.
  enum Count : std::size_t { kWorkers, kAdded, kDone, kFailed, kWaiting, kRestarts, kCounts };

  const pid_t owner_;
  TaskSegment segment_;
  shm::Board board_;
  mutable std::mutex mutex_;  // guards the rest
  mutable std::condition_variable drained_;
  std::vector<Slot> slots_;
  std::deque<Task> pending_;
  std::size_t pending_bytes_ = 0;
  std::deque<Event> events_;
  std::unordered_map<const TaskJob*, std::uint64_t> tickets_;
  std::size_t open_jobs_ = 0;
  std::uint64_t next_id_ = 1;
  double task_nanos_ = 1e9;  // a moving mean of how long a task runs
  os::Deadline next_look_{};
  TaskBytes stop_error_;
  bool closed_ = false, stopped_ = false, broken_ = false;
};

}  // namespace shoal::ipc
