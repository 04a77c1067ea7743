// What a vector environment counts for those who look from outside (shm/board.h, `shoal stat`).
//
// Threads: the vector environment's caller writes; whoever observes may be any thread.
// Processes: one writes; others of the same user map it for reading only.
// Death: each counter is one word, of before or after. They can be read for as long as a process has
// the memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/shm/board.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/fault/health.h"

namespace shoal::vector {

/// A resource. Its counters, in this order, then "worker 0", "worker 1", …: the process of each,
/// and its WorkerState << 32.
class EnvBoard {
 public:
  enum Name : std::size_t {
    kEnvs,
    kWorkers,
    kBatches,   // of steps, or of recv()
    kEnvSteps,  // of single environments
    kResets,
    kWaitNs,   // of the caller for its workers
    kCall,     // CallState::Call under way; 0: none
    kSinceNs,  // os::now_ns(): it is waited for since then; or when the last one ended
    kRestarts,
    kInFlight,
    kSegment,  // the inode of the segment that has the words of its workers; 0: none
    kNames,
  };

  EnvBoard(int num_envs, int num_workers);

  /// "serial", "thread", "process", and with " async" behind where it is send() and recv().
  void set_backend(std::string_view backend) noexcept;
  /// What the environments are.
  void set_title(std::string_view title) noexcept { board_.set_title(title); }
  /// Where the words of its workers are (observe_workers()).
  void set_segment(int fd) noexcept;

  /// The caller waits for its workers.
  void waiting(CallState::Call call, std::uint64_t now_ns) noexcept {
    board_[kCall].set(static_cast<std::int64_t>(call));
    board_[kSinceNs].set(static_cast<std::int64_t>(now_ns));
  }
  struct Totals {
    std::uint64_t batches = 0, env_steps = 0, resets = 0, wait_ns = 0;
  };
  /// It has what it waited for.
  void received(const Totals& totals, std::uint64_t now_ns) noexcept {
    board_[kBatches].set(static_cast<std::int64_t>(totals.batches));
    board_[kEnvSteps].set(static_cast<std::int64_t>(totals.env_steps));
    board_[kResets].set(static_cast<std::int64_t>(totals.resets));
    board_[kWaitNs].set(static_cast<std::int64_t>(totals.wait_ns));
    waiting(CallState::Call::kNone, now_ns);
  }
  void set_in_flight(int envs) noexcept { board_[kInFlight].set(envs); }
  void set_worker(int worker, const WorkerHealth& health) noexcept;
  void count_restart() noexcept { board_[kRestarts].add(); }
  /// They were closed.
  void end() noexcept {
    ended_.store(true, std::memory_order_relaxed);  // relaxed: no data goes with it
    board_.end();
  }
  /// `workers` in this process, as they are now: from any thread.
  std::vector<WorkerHealth> now(std::vector<WorkerHealth> workers) const;
  int fd() const noexcept { return board_.fd(); }

 private:
  shm::Board board_;
  std::atomic<bool> ended_{false};
};

/// Of a vector environment that has one.
class Boarded {
 public:
  virtual EnvBoard& board() noexcept = 0;

 protected:
  ~Boarded() = default;
};

/// One worker's words; a value.
struct ObservedWorker {
  std::uint64_t steps = 0;     // batches; where environments are stepped one by one: of those
  std::uint64_t busy_ns = 0;   // in reset and step
  int env = -1;                // whose code runs now; -1: nobody's
  bool in_reset = false;       // it is its reset()
  std::uint64_t since_ns = 0;  // os::now_ns(): since then
};

/// Those in the segment of a vector environment, which EnvBoard::kSegment names. Maps it for
/// reading only. Throws Error for what is something else, or of another version.
std::vector<ObservedWorker> observe_workers(os::Fd segment);

}  // namespace shoal::vector
