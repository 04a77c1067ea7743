// The parent's side of a ProcessVectorEnv: starting, commanding, waiting, and what a death leads
// to.
//
// Invariants: a call that begins ends with every row written, by its worker or as a fault, or with
// an exception; a seat has at most one command under way; a seat that owes a fault is given no
// command until its rows ended as one; a step never waits for a seat that is empty, unless all are.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/process/launcher.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/closing.h"
#include "shoal/vector/control_block.h"
#include "shoal/vector/fault_account.h"
#include "shoal/vector/fault_ledger.h"
#include "shoal/vector/health.h"
#include "shoal/vector/messages.h"
#include "shoal/vector/obs_sets.h"
#include "shoal/vector/rows.h"
#include "shoal/vector/spread_policy.h"
#include "shoal/vector/vector_env.h"
#include "shoal/vector/worker_cpus.h"
#include "shoal/vector/worker_seat.h"

namespace shoal::vector {

/// Threads: the caller's; the launcher's supervisor thread touches only the count of exits.
class ProcessEngine {
 public:
  ProcessEngine(std::shared_ptr<process::Launcher> launcher,
                std::vector<process::WorkerSpec> workers, const Options& options);
  ~ProcessEngine() { close(); }

  ProcessEngine(const ProcessEngine&) = delete;
  ProcessEngine& operator=(const ProcessEngine&) = delete;

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask);
  void step_async();
  Batch wait(std::optional<std::chrono::nanoseconds> timeout);
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout);
  void request_async(std::span<const std::vector<std::byte>> messages);
  std::vector<std::vector<std::byte>> request_wait(std::optional<std::chrono::nanoseconds> timeout);
  std::span<const std::byte> info(int worker) const;
  Stats stats() const;
  /// Any thread.
  std::vector<WorkerHealth> health() const;
  /// Of the last reset or step: which rows it lost, and to what.
  std::span<const RowFaultRecord> faults() const noexcept { return faults_; }
  std::shared_ptr<const void> lease_obs() { return obs_sets_.lease(); }
  VectorEnv::Presence presence(int env) const;
  void restored(int env);
  /// Within options.close_timeout; what has not ended after `timeout` is killed.
  void close() noexcept { close(options_.close_timeout); }
  void close(std::chrono::milliseconds timeout) noexcept;
  VectorEnv::CloseOutcome take_close_outcome() { return closing_.take(); }

  const Rows& rows() const noexcept { return rows_; }
  const Hello& spaces() const noexcept { return spaces_; }
  std::span<const WorkerSeat> seats() const noexcept { return seats_; }
  /// Throws InvalidArgument when there is no such worker.
  const WorkerSeat& seat(int worker) const;

 private:
  using Starts = std::vector<std::unique_ptr<process::WorkerProcess>>;

  // Starting.
  Starts launch(std::vector<process::WorkerSpec> specs);
  void receive_hellos();
  void attach(WorkerSeat& seat, std::span<const std::byte> handed = {});
  void place_all();
  void follow_caller();
  void learn_placement(std::uint64_t now_ns);
  sync::SpinPolicy spinning_beside(int workers) const;
  void make_segment();
  void throw_if_one_died_starting();
  Patience patience_for_start() const;
  Patience patience_for(std::optional<std::chrono::nanoseconds> timeout) const;

  // Faults.
  void look_for_deaths();
  void look_for_hangs();
  void end_hung(WorkerSeat& seat, int env, bool in_reset, std::chrono::milliseconds limit);
  void handle_death(WorkerSeat& seat, process::DeathCertificate certificate);
  FaultRecord record_of(const WorkerSeat& seat, const process::DeathCertificate& certificate);
  Fault admit(FaultRecord record);
  void lose_seat(WorkerSeat& seat, FaultRecord record);
  void wipe_torn_rows(const WorkerSeat& seat);
  void end_rows_as_fault(WorkerSeat& seat);
  void end_row(int row, RowFault why);
  void lose_rows(WorkerSeat& seat);
  void mark_rows_that_are_not_live();

  // Seats whose worker is gone.
  void tend();
  void tend_seat(WorkerSeat& seat);
  void await_seats(const std::function<bool(const WorkerSeat&)>& wanted, const Patience& patience);
  void await_worker(WorkerSeat& seat, const Patience& patience);
  void await_any_row(const Patience& patience);
  void rest_until_due(const Patience& patience);
  void hung_while_starting(WorkerSeat& seat);
  bool gone_for_good(const WorkerSeat& seat) const;

  // Memory.
  struct Leaving {
    std::unique_ptr<process::WorkerProcess> process;
    std::string name;
    os::Deadline deadline;
  };
  bool watches_memory() const {
    return options_.memory_limit > 0 || options_.memory_hard_limit > 0;
  }
  void watch_memory();
  void look_for_hogs();
  void end_hog(WorkerSeat& seat, std::uint64_t bytes, int env);
  void tend_successor(WorkerSeat& seat);
  void drop_successor(WorkerSeat& seat, const char* why);
  bool all_rest(const WorkerSeat& seat) const;
  void rest_ended_rows(WorkerSeat& seat);
  void change_over(WorkerSeat& seat);
  void change_over_before_reset();
  std::vector<std::byte> hand_over(WorkerSeat& seat);
  static void tell_close_failures(const Leaving& old) noexcept;

  // Commanding and waiting.
  WorkerCell& cell_of(const WorkerSeat& seat) const { return control_.cell(seat.cell); }
  void post(Command command);
  bool give_orders(WorkerSeat& seat, Command command);
  void prepare_reset(int row, bool keep_seed);
  void give(WorkerSeat& seat, Command command);
  bool busy(const WorkerSeat& seat) const;
  void wait_for_workers(const Patience& patience);
  bool settle_dead_workers();
  [[noreturn]] void throw_timed_out();
  Batch collect();
  void collect_seat(WorkerSeat& seat);
  void collect_failure(WorkerSeat& seat);
  void settle_orders(WorkerSeat& seat);
  BytesMessage next_of_kind(WorkerSeat& seat, MessageKind kind);
  void add_later_failures(const WorkerSeat& first, process::RemoteError& failure);

  // Closing.
  void await_end(process::WorkerProcess& worker, os::Deadline deadline) noexcept;
  static std::vector<process::ErrorReport> close_failures(process::WorkerProcess& worker) noexcept;

  // Requests.
  std::vector<std::byte> answer(WorkerSeat& seat, std::uint64_t sequence, const Patience& patience);
  void take_answer(WorkerSeat& seat, const Patience& patience);
  void settle_refusal(WorkerSeat& seat);

  std::shared_ptr<process::Launcher> launcher_;
  Options options_;
  const int owner_pid_;
  std::shared_ptr<std::atomic<std::uint64_t>>
      exits_;  // workers that ended, counted by the supervisor thread
  std::uint64_t exits_seen_ = 0;
  std::vector<WorkerSeat> seats_;
  Hello spaces_;
  ControlBlock control_;
  Rows rows_;
  ObsSets obs_sets_;
  CallState state_;
  Closing closing_;
  WorkerCpus cpus_;
  SpreadPolicy spread_policy_;    // over how many of those
  int strays_ = 0;                // rounds in a row that the caller ended on another CPU than its
  const int allowed_cpus_;        // that this process may use
  sync::SpinPolicy spin_policy_;  // of the caller: it spins where there is a CPU for it as well
  std::uint64_t sequence_ = 0;
  std::uint64_t posted_ns_ = 0;  // when the call under way was given to the workers
  bool posted_none_ = false;     // no worker was given anything: no row is live
  Command posted_command_ = Command::kNone;

  FaultLedger ledger_;
  HealthBoard health_;
  OomEvidence oom_evidence_;
  bool rows_have_faults_ = false;
  std::vector<RowFaultRecord> faults_;
  std::vector<Leaving> leaving_;                     // replaced, told to close, not ended yet
  std::vector<std::optional<std::uint64_t>> seeds_;  // each row's last explicit one

  std::uint64_t steps_ = 0;
  std::uint64_t resets_ = 0;
  std::uint64_t wait_ns_ = 0;
  std::uint64_t parks_ = 0;
};

}  // namespace shoal::vector
