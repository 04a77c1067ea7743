// A VectorEnv whose environments live in the workers of a pool: one session of it.
//
// Death of a worker: OnFault::kRaise: recv(), wait() or the next call throws process::WorkerDied,
// and every later call InvalidState. OnFault::kRestart: what was out comes back as faults, and so
// does the next step of its other environments (truncated 1, fault 1, reward 0, obs the last one,
// or zeros where that was being written); their step after that is a reset. Meanwhile a new worker
// is started, at once or after FaultPolicy::backoff; orders wait for it, other environments go on.
// OnFault::kDrop: the same rows have RowFault::kFault; from then on the ids of dropped
// environments are left out by send(), and fill batches that would never be full (kDropped).
//
// Failure of an environment: OnFault::kRaise: process::RemoteError. Otherwise it alone is replaced
// where its stepper can do that, after its back-off, else its worker is.
//
// Memory: a worker over Options::memory_limit is replaced between episodes, for each session of its
// pool when the environments of that one rest; what is in flight elsewhere goes on. A successor
// that fails costs nothing but a warning.
//
// Deadlines: as ProcessVectorEnv; a worker that passes one of this session's is killed, for all
// sessions of its pool.
//
// More than max_restarts faults within restart_window, or no environment left, throw TooManyFaults.
//
// Threads: as VectorEnv.
// Fork: the child must not use it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/sync/spin_policy.h"
#include "shoal/vector/async_vector_env.h"
#include "shoal/vector/closing.h"
#include "shoal/vector/fault_account.h"
#include "shoal/vector/fault_ledger.h"
#include "shoal/vector/health.h"
#include "shoal/vector/worker_pool.h"

namespace shoal::vector {

class PoolVectorEnv final : public AsyncVectorEnv {
 public:
  /// What one worker of the pool is to build: worker i has payloads[i].
  struct Payload {
    int num_envs = 0;  // 0: it has none
    std::vector<std::byte> bytes;
  };

  /// Opens the session and waits until all workers have built their environments. `owns_pool`:
  /// close() closes the pool, too. Throws as ProcessVectorEnv does.
  PoolVectorEnv(std::shared_ptr<WorkerPool> pool, std::vector<Payload> payloads,
                const Options& options, bool owns_pool);
  ~PoolVectorEnv() override;

  PoolVectorEnv(const PoolVectorEnv&) = delete;
  PoolVectorEnv& operator=(const PoolVectorEnv&) = delete;

  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  void request_async(std::span<const std::vector<std::byte>> messages) override;
  std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  std::vector<WorkerHealth> health() const override;
  void close() noexcept override { close_within(options().close_timeout); }
  void close_within(std::chrono::milliseconds timeout) noexcept override;
  CloseOutcome take_close_outcome() override { return closing_.take(); }

  /// What worker `worker` said before there were arrays; `extra` is the face's.
  const Hello& hello(int worker) const;

 private:
  /// On its way to a younger life of the same worker.
  struct Move {
    enum class Step : std::uint8_t {
      kOpening,   // its environments are being built there
      kDraining,  // they stand: those here come to rest
      kHanding,   // all rest: the old worker was asked for their generators
    };
    WorkerPool::Entry to;
    Step step{};
    os::Deadline deadline{};     // of the step
    std::uint64_t sequence = 0;  // of what the old worker was asked
  };

  /// The session in one worker of the pool.
  struct Part {
    enum class State : std::uint8_t {
      kUp,       // its environments stand
      kAway,     // they do not; the next try is at restart_at
      kOpening,  // its worker builds them anew, until start_deadline
      kGone,     // they were dropped
    };
    FaultScene scene;  // worker: of the pool
    std::vector<std::byte> payload;
    Hello hello;
    bool can_rebuild = false;
    State state = State::kOpening;
    PoolLife life;
    std::shared_ptr<PoolDoor> door;
    std::optional<Move> move;
    os::Deadline move_retry{};  // not before, where one has failed
    std::uint64_t recycles = 0;
    int begun_anew = 0;  // of these, those without the generators of the worker before
    os::Deadline restart_at{};
    os::Deadline start_deadline{};
    std::uint64_t stalled_ns = 0;  // since when it does not take its orders, and how many it had
    std::uint64_t stalled_at = 0;  // obeyed then; 0: it does
  };

  void wake(int worker) override;
  void tell(int worker, std::span<const std::byte> message) override;
  sync::WaitOutcome await(sync::Gather& gather, os::Deadline deadline) override;
  bool look_around() override;
  std::optional<std::vector<std::byte>> take_info(int row, std::uint32_t sequence,
                                                  bool may_come) override;
  void on_failure(int row, std::span<const std::byte> report) override;
  Fault fault_of(int row) override { return fault_of_[static_cast<std::size_t>(row)]; }
  bool restless() const override {
    return unsettled_ > 0 || backing_off_ > 0 || (moving_ > 0 && hands_over());
  }
  int restarts_of(std::size_t row) const override {
    const int at = static_cast<int>(row);
    return ledger_.restarts(at) + part(worker_of(at)).begun_anew;
  }
  void is_back(std::size_t row) override { ledger_.back(static_cast<int>(row)); }
  void end_back_off(std::size_t row) override;

  // Starting, and asking (pool_vector_env.cc).
  void settle_in(Part& at, WorkerPool::Entry entry);
  void send_open(const Part& at, PoolLife life);
  void receive_hellos(os::Deadline deadline);
  bool receive_hello(int worker, os::Deadline until);
  void take_hello(Part& from, const PoolMessage& message);
  [[noreturn]] void throw_late_start(const Part& late);
  void attach(int worker, std::vector<std::byte> handed = {});
  void keep_info(PoolMessage message);
  static process::ErrorReport report_in(std::span<const std::byte> bytes);
  std::uint64_t ask(int worker, std::span<const std::byte> message);
  static bool answers(const Part& part) {
    return part.state == Part::State::kUp &&
           !(part.move && part.move->step == Move::Step::kHanding);
  }
  void await_up(int worker, os::Deadline deadline);
  PoolMessage await_answer(int worker, std::uint64_t sequence, os::Deadline deadline);
  std::vector<std::byte> take_answer(int worker, PoolMessage answer);
  PoolMessage await_message(int worker, os::Deadline deadline, const char* waiting_for,
                            const std::function<bool(const PoolMessage&)>& wanted);

  void close_session(WorkerPool& pool, os::Deadline deadline) noexcept;
  void await_closed(WorkerPool& pool, const Part& at, os::Deadline deadline);

  // What becomes of those that are lost (pool_vector_env_deaths.cc).
  bool look_for_deaths();
  void look_for_hangs();
  bool stalls(int worker, std::uint64_t now_ns);
  void end_hung(int worker, int env, bool in_reset);
  void handle_death(int worker, PoolDeath death);
  void lose_part(int worker, FaultRecord record);
  Fault admit(FaultRecord record);
  bool tend();
  bool may_restart(const Part& at) const;
  bool restart(int worker);
  void rise(Part& at);
  bool tend_opening(int worker);
  void end_back_offs();
  void dismiss_if_all_are_dropped(int worker);
  void set_state(Part& part, Part::State state);
  /// Whether it has a place in the life that it names.
  static bool sits(const Part& part) {
    return part.state == Part::State::kUp || part.state == Part::State::kOpening;
  }

  // Workers whose memory has grown (pool_vector_env_memory.cc).
  void look_at_memory();
  bool other_life_waits(const Part& at) const;
  void end_hog(Part& at, std::uint64_t bytes);
  void begin_move(Part& at);
  void warn_of_move(Part& at, const char* why);
  void drop_move(Part& at, const char* why);
  void forget_move(Part& at);
  bool tend_moves();
  void tend_move_opening(Part& at);
  void tend_move_draining(Part& at);
  bool tend_move_handing(Part& at);
  static void warn_of_hand_over(const Part& at, const std::string& why);
  void change_over(Part& at, std::vector<std::byte> handed);
  bool hands_over() const;

  Part& part(int worker) { return parts_[static_cast<std::size_t>(worker)]; }
  const Part& part(int worker) const { return parts_[static_cast<std::size_t>(worker)]; }
  int index_of(const Part& part) const { return static_cast<int>(&part - parts_.data()); }

  std::shared_ptr<WorkerPool> pool_;
  const bool owns_pool_;
  const int owner_pid_;
  const std::uint32_t session_;
  sync::SpinPolicy spin_policy_;     // of the caller: it spins where there is a CPU for it as well
  std::vector<Part> parts_;          // by worker of this vector environment
  int unsettled_ = 0;                // parts that are away or opening
  int backing_off_ = 0;              // environments that are to come later
  std::uint64_t hangs_seen_ns_ = 0;  // when they were looked for last
  std::uint64_t memory_seen_ns_ = 0;
  int moving_ = 0;  // parts that are on their way to a younger life
  std::uint64_t exits_seen_ = 0;
  std::uint64_t sequence_ = 0;  // of requests
  struct Asked {
    int worker;
    std::uint64_t sequence;
    std::optional<PoolMessage> answer;  // with kind 0: there is none to be had
  };
  std::vector<Asked> asked_;  // by request_async()
  Closing closing_;
  FaultLedger ledger_;
  std::vector<Fault> fault_of_;  // by row: the last that it was lost in
  OomEvidence oom_evidence_;
  HealthBoard health_;
  const std::weak_ptr<WorkerPool> asked_pool_;  // for health(), from any thread
  std::map<int, std::pair<std::uint32_t, std::vector<std::byte>>>
      infos_;  // the last one of a row, with its sequence
};

}  // namespace shoal::vector
