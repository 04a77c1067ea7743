// A VectorEnv whose environments are stepped one by one: send() hands out orders, recv() hands out
// batches of those that are ready. What all hosts of such environments share; who steps (threads,
// processes) is the derived class's.
//
// Blocks: results are written into blocks of batch_size rows, and recv() lends a block to the
// caller without a copy. A lent block is never written to before the caller has let it go. When
// the caller keeps so many that too few are left for what may be in flight, recv() hands out a
// copy instead, so that nothing waits for the caller and nothing is overwritten.
//
// Synchronous calls (reset_async, step_async, wait) work too while nothing is in flight; they end
// in the home rows, environment i in row i.
//
// An environment that is not there (its worker died, or it failed and waits for its back-off) is
// *down*: its orders wait here. In arrival order it simply comes later. Where a result has a place
// for it (cohorts, synchronous steps) nobody waits for it, unless all of that result are down: its
// row says RowFault::kDown. Resets wait.
//
// A worker is replaced between episodes. When it is to go, it is drained: each of its environments
// takes no further order once its episode has ended, and is down until the new worker is there.
// Where a batch cannot be filled without drained environments, they fill it with rows that say
// RowFault::kDown. An environment that the caller leaves in the middle of an episode keeps nobody
// waiting: the others of its worker go on.
//
// Invariants: an environment has at most one order under way; there is a block for every order
// that is under way; a call that throws before it began has changed nothing.
//
// Threads: the caller's. A lease may be dropped by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/sync/wait_outcome.h"
#include "shoal/vector/async/async_segment.h"
#include "shoal/vector/async/in_flight.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// Processes: the caller's; where the workers are, the derived class says.
/// Death: of a worker, or of the caller: as the derived class says.
class AsyncVectorEnv : public VectorEnv, public Boarded {
 public:
  /// Blocks that the caller may keep before recv() begins to copy.
  static constexpr int kSpareBlocks = 4;

  int num_envs() const noexcept final { return segment_.num_envs(); }
  int num_workers() const noexcept final { return static_cast<int>(shares_.size()); }
  const env::Space& single_observation_space() const noexcept final {
    return spaces_.observation_space;
  }
  const env::Space& single_action_space() const noexcept final { return spaces_.action_space; }
  AutoresetMode autoreset_mode() const noexcept final { return segment_.home().autoreset_mode; }
  std::span<const shm::TensorView> actions() const noexcept final {
    return segment_.home().actions;
  }

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask = {}) final;
  void step_async() final;
  Batch wait(std::optional<std::chrono::nanoseconds> timeout = {}) final;

  int batch_size() const noexcept final { return segment_.batch_size(); }
  int in_flight() const noexcept final { return flight_.count(); }
  void send(std::span<const std::int64_t> env_ids) final;
  /// Throws what send() of these would throw.
  void require_sendable(std::span<const std::int64_t> env_ids);
  /// The worker of `row` is told this, as by request(), right before that environment's next step.
  /// Not while it is in flight.
  void tell_with_step(std::size_t row, std::vector<std::byte> message);
  /// The same of the next resets of these rows, a message each; none where `messages` is empty, in the
  /// place of those of a reset that was not made.
  void tell_with_reset(std::span<const std::int64_t> rows,
                       std::vector<std::vector<std::byte>> messages);
  /// One that has nothing to do, so that a request() is answered at once; any where all have.
  int idle_worker() const noexcept;
  /// Throws what send_reset() of these would throw.
  void require_resettable(std::span<const std::int64_t> env_ids) const;
  /// Throws what a synchronous call of this name would throw.
  void require_idle(const char* call) {
    begin_call(call);
    require_nothing_in_flight(call);
  }
  void send_reset(std::span<const std::optional<std::uint64_t>> seeds,
                  std::span<const std::uint8_t> mask = {}) final;
  Arrivals recv(std::optional<std::chrono::nanoseconds> timeout = {}) final;
  Presence presence(int env) const final;
  void restored(int env) final;
  void discard(std::optional<std::chrono::nanoseconds> timeout = {}) final;

  /// What environments said in the synchronous call that wait() ended last; valid until the next.
  const std::vector<Arrivals::Info>& home_infos() const noexcept { return home_infos_; }

  Stats stats() const override;
  void require_open(const char* call) const override { state_.require_open(call); }
  /// Of the last result of recv() or wait(); `row` is the place in it.
  std::span<const RowFaultRecord> faults() const override { return row_faults_; }

 protected:
  /// A worker's environments.
  struct Share {
    int first_env = 0;
    int num_envs = 0;
  };

  explicit AsyncVectorEnv(const Options& options);

  /// Makes the segment. Throws InvalidArgument for options that do not fit the environments.
  void set_up(Hello spaces, std::vector<Share> shares, AutoresetMode mode);

  AsyncSegment& segment() noexcept { return segment_; }
  const AsyncSegment& segment() const noexcept { return segment_; }
  const std::vector<Share>& shares() const noexcept { return shares_; }
  const Hello& spaces() const noexcept { return spaces_; }
  const Options& options() const noexcept { return options_; }
  CallState& state() noexcept { return state_; }
  InFlight& flight() noexcept { return flight_; }
  const InFlight& flight() const noexcept { return flight_; }
  int worker_of(int row) const noexcept { return owner_[static_cast<std::size_t>(row)]; }
  bool is_ready(std::size_t row) const noexcept;

  /// Worker `worker` has lost its environments and takes no orders until come_back(): those that
  /// are still out end as faults, the next step of the others does; then all are new ones.
  void lose(int worker);
  /// Worker `worker` takes orders again.
  void come_back(int worker);
  /// Environment `row` will not come back.
  void drop(std::size_t row);
  /// Orders of `row` wait here from now on, for one reason more; or for one less.
  void hold(std::size_t row, InFlight::Hold why) { flight_.env(row).hold |= why; }
  void release(std::size_t row, InFlight::Hold why);
  /// Worker `worker` has orders that it has not obeyed since `start_ns`; the oldest of those.
  std::optional<InboxEntry> overdue(int worker, std::uint64_t start_ns, std::uint64_t now_ns) const;
  /// Hands orders that were released to their workers.
  void wake_all();
  /// The call under way ends in the midst of an environment. What is in flight stays so until it is
  /// discarded, and all are to be reset.
  void interrupt() noexcept;

  // A worker that is to be replaced between episodes (async_vector_env_draining.cc).

  /// From now on an environment of `worker` is drained when its episode ends.
  void begin_draining(int worker);
  /// Nothing of `worker` is between two orders of one episode.
  bool all_drained(int worker) const noexcept;
  /// It stays: they go on.
  void end_draining(int worker);
  /// All are drained, and others are in their place. The first step of these is a reset, with the
  /// generators of those before them where they were handed over.
  void replace(int worker, bool keep_generators);

  // What the host does.

  /// `worker` has new orders.
  virtual void wake(int worker) = 0;
  /// `worker` is told this before the orders that follow.
  virtual void tell(int worker, std::span<const std::byte> message) = 0;
  /// All orders of a call are out.
  virtual void all_sent() {}
  /// Works or waits until `gather` is complete, `deadline` at the latest.
  virtual sync::WaitOutcome await(sync::Gather& gather, os::Deadline deadline) = 0;
  /// What wait() or recv() waits for now, as awaited(); null: nothing.
  std::function<bool(os::Deadline)> awaited_batch();
  /// Between two waits: deals with deaths and messages. True when something has changed.
  virtual bool look_around() { return false; }
  /// The info of `row` that had no room in its block; waits for it where `may_come`. Nothing when
  /// its worker died before it could send it.
  virtual std::optional<std::vector<std::byte>> take_info(int row, std::uint32_t sequence,
                                                          bool may_come) = 0;
  /// The environment of `row` has thrown. Throws, or deals with it so that it can go on; after
  /// interrupt() what it left is thrown away.
  virtual void on_failure(int row, std::span<const std::byte> report) = 0;
  /// Why the environment of `row` was lost; may be null.
  virtual Fault fault_of(int /*row*/) { return {}; }
  /// Whether something is going on that is worth a look every millisecond of a wait.
  virtual bool is_unsettled() const { return false; }
  /// How many new environments `row` has had.
  virtual int restarts_of(std::size_t /*row*/) const { return 0; }
  /// The new environment of `row` has been reset.
  virtual void is_back(std::size_t /*row*/) {}
  /// Orders of `row` no longer wait because it has failed before.
  virtual void end_back_off(std::size_t /*row*/) {}

 private:
  class Leases;
  /// What a call waits for: these slots of a block, to which its gather counts down.
  struct Target {
    const AsyncBlock& block;
    sync::ArrivalSlots& slots;
    std::uint32_t word_block;
    std::uint32_t sequence;
    std::span<const std::size_t> wanted;
  };

  /// Where a cohort's results go, as next_recv_ stood at `seen_at`.
  struct CohortTurn {
    std::uint64_t seen_at = UINT64_MAX;
    std::size_t first = 0;  // the cohort's first row
    std::uint16_t block = 0;
    std::uint32_t sequence = 0;
  };

  void begin_call(const char* call);
  void check_options() const;
  int blocks_needed() const noexcept;
  InboxEntry order_for(std::size_t row, Order order);
  void open(std::uint64_t sequence);
  int take_free_block();
  std::size_t post_steps(std::span<const std::int64_t> env_ids, std::uint64_t now_ns);
  void push(InboxEntry entry, std::uint64_t now_ns);
  void post(std::size_t row);
  void send_home(std::vector<std::size_t> rows, Order order);
  void require_batch() const;
  std::vector<std::int64_t> expected_ids(std::uint64_t sequence) const;
  void wait_for(const Target& target, std::optional<std::chrono::nanoseconds> timeout);
  [[noreturn]] void throw_timed_out();
  void end_as_fault(std::size_t row, const AsyncBlock& block, std::size_t slot, RowFault fault);
  void deliver_fault(std::size_t row, RowFault fault);
  std::optional<sync::SlotPlace> claimed_place(std::size_t row);
  void wipe(std::size_t row);
  void pass_over(std::size_t row);
  bool pass_over_the_down(const Target& target);
  void prepare_renewal(std::size_t row);
  void set_draining(int worker, bool draining) noexcept;
  bool is_draining(int worker) const noexcept;
  bool is_between_episodes(std::size_t row) const noexcept;
  bool is_stuck(std::size_t row) const noexcept;
  void mark_drained(std::size_t row);
  void resume(std::size_t row);
  void drain_before_reset(std::span<const std::size_t> rows);
  void settle_ends(const AsyncBlock& block, std::span<const std::size_t> slots);
  bool fill_with_drained();
  void settle_renewals(const AsyncBlock& block, std::span<const std::size_t> slots);
  void fill_with_dropped();
  bool is_left_out(std::size_t row) const noexcept;
  void write_seeds(std::span<const std::size_t> rows,
                   std::span<const std::optional<std::uint64_t>> seeds);
  std::vector<std::size_t> selected_rows(const char* call,
                                         std::span<const std::optional<std::uint64_t>> seeds,
                                         std::span<const std::uint8_t> mask) const;
  void require_nothing_in_flight(const char* call) const;
  void take_large_infos(const AsyncBlock& block, std::span<const std::size_t> slots,
                        std::uint32_t sequence);
  void take_failures(const AsyncBlock& block, std::span<const std::size_t> slots);
  void discard_interrupted_call();
  std::span<const std::byte> info_of(const AsyncBlock& block, std::size_t slot) const;
  void gather_faults(const AsyncBlock& block, std::span<const std::size_t> slots);
  void gather_infos(const AsyncBlock& block, std::span<const std::size_t> slots,
                    std::vector<Arrivals::Info>& infos) const;
  Arrivals hand_out(std::uint64_t sequence);
  void take_rows(const AsyncBlock& block, std::span<const std::size_t> slots);
  std::size_t row_at(const AsyncBlock& block, std::size_t slot) const noexcept {
    return &block == &segment_.block(segment_.home_block()) ? slot : rows_that_came_[slot];
  }
  [[noreturn]] void throw_overwritten();

  Options options_;
  Hello spaces_;
  std::vector<Share> shares_;
  std::vector<int> owner_;  // worker, by row; for good
  AsyncSegment segment_;
  CallState state_{1};
  InFlight flight_{0};
  int max_in_flight_ = 0;
  int held_ = 0;  // orders that wait here
  // By row; or empty.
  std::vector<std::vector<std::byte>> told_with_step_, told_with_reset_;
  int renewals_ = 0;                                 // orders that are an environment's first
  std::vector<std::optional<std::uint64_t>> seeds_;  // each row's last explicit one

  // Batches that are open: from sequence next_recv_ on, or one of each cohort's.
  std::uint64_t next_recv_ = 0;
  std::uint64_t tickets_ = 0;  // of arrival order, given out
  std::uint64_t opened_ = 0;   // likewise, of the batches that were opened: tickets_ or more
  CohortTurn turn_;            // the last one that an order was made for
  std::vector<int> block_of_;  // by sequence % size; -1: not open
  std::vector<int> free_;      // blocks
  std::shared_ptr<Leases> leases_;

  std::uint64_t home_round_ = 0;
  std::vector<std::size_t> home_rows_;  // of the synchronous call under way
  std::vector<Arrivals::Info> home_infos_;
  std::map<std::size_t, std::vector<std::byte>> large_infos_;  // of the last batch, by slot
  std::vector<std::uint8_t> seen_;                             // all zero between calls
  std::vector<std::uint8_t> to_wake_;                          // by worker
  std::vector<RowFaultRecord> row_faults_;
  std::vector<std::size_t> all_slots_;       // 0, 1, …, batch_size - 1
  std::vector<std::size_t> rows_that_came_;  // by slot, of the batch that take_rows() took last

  std::uint64_t batches_ = 0;
  std::uint64_t resets_ = 0;
  std::uint64_t wait_ns_ = 0;
  std::uint64_t parks_ = 0;
};

}  // namespace shoal::vector
