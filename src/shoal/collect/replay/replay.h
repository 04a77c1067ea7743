// Experience to sample from, in shared memory: several processes append transitions, several draw them,
// uniformly or by priority, and any of them may be killed at any time.
//
//   Replay replay = Replay::create({.obs = specs, .action = spec, .columns = 8, .rows = 10'000});
//   replay.begin(0, obs, 0);                              // column 0: an environment's first observation
//   replay.step(0, {.action = action, .reward = 1}, obs, 0);  // and what a step led to
//   const bool found = replay.sample({.samples = 32, .random = random}, samples);
//
// A column is a stream of rows, one environment's, in a ring (sync/ring_column.h): row t is what was seen,
// done and got, and the observation of row t + 1 is where it led. So each observation is stored once,
// and a row that is no transition (a next-step autoreset's, a dead worker's) is stored as it comes, with
// `valid` 0: it is never sampled, and no window goes beyond it.
//
// A window begins at a sampled row and is n_step rows long, or ends
//   - with a row that terminated or was truncated,
//   - before a row that is not valid,
//   - at the newest row.
// What follows its last row is next_obs. Its value is discounted by gamma^steps, and counts unless the last row
// terminated (Sutton, 1988; as Stable-Baselines3's NStepReplayBuffer).
//
// The bytes of the arena:
//
//   offset  bytes  field
//        0     64  ReplayHeader
//      128     64  lock: of members, and of who repairs
//      256    320  gate: members that change priorities
//      640   1536  members: the process of each, three words
//     2304      …  SumTree: a leaf for place r % rows of row r of each column; none unless prioritised
//        …      …  RingColumn of each column
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/os/process/making_process.h"
#include "shoal/shm/arena.h"
#include "shoal/shm/tensor.h"
#include "shoal/sync/gate.h"
#include "shoal/sync/ring_column.h"
#include "shoal/sync/robust_lock.h"
#include "shoal/sync/sum_tree.h"

namespace shoal::collect {

inline constexpr std::uint32_t kReplayVersion = 2;

struct ReplayHeader {
  char magic[8];  // "SHOALRPL"
  std::uint32_t version;
  std::uint32_t prioritized;
  std::uint64_t columns;
  std::uint64_t rows;
  std::uint64_t front_bytes;  // of a row: the observation
  std::uint64_t back_bytes;   // action, reward, flags
  std::uint64_t arrays;       // hash of their element types and shapes
  std::uint64_t unused;
};
static_assert(sizeof(ReplayHeader) == 64 && std::is_trivially_copyable_v<ReplayHeader>);

struct ReplaySpec {
  std::vector<shm::TensorSpec> obs;  // the leaves of one observation
  shm::TensorSpec action;            // of one row
  int columns = 1;                   // environments
  std::int64_t rows = 2;             // places of each column: it keeps the last rows - 1 rows
  bool prioritized = false;
};

/// What a step did, beside where it led.
struct ReplayStep {
  const std::byte* action = nullptr;  // one row of the action's spec
  float reward = 0;
  bool terminated = false;
  bool truncated = false;
  bool valid = true;
};

/// A row, for ever: no other row of the replay has these numbers.
struct ReplayPick {
  int column = 0;
  std::uint64_t row = 0;
  bool operator==(const ReplayPick&) const = default;
};

/// 64 random bits of one attempt at one sample: a function of these two, so that samples can be repeated.
using ReplayRandom = std::function<std::uint64_t(std::uint32_t sample, std::uint32_t attempt)>;

struct ReplayRequest {
  int samples = 1;
  int n_step = 1;  // most rows of a window
  /// Rows are drawn in proportion to their priorities, sample k from the k-th of `samples` equal parts of
  /// their sum (Schaul et al., 2016, appendix B.2.1); otherwise all are equally likely.
  bool prioritized = false;
  /// Of the weights that correct for it: (least priority / priority)^beta, at most 1; 1 if not
  /// prioritised. The least is of all rows, not of the batch, and is rounded down by a 32nd at most.
  double beta = 0;
  ReplayRandom random;
};

/// What was drawn: sample k is row k of every array. Room that is used again.
struct ReplaySamples {
  std::vector<ReplayPick> picks;
  std::vector<shm::TensorView> obs;       // a leaf each, borrowed from this
  std::vector<shm::TensorView> next_obs;  // likewise
  shm::TensorView action;
  std::vector<float> rewards;            // [samples, n_step]; zeros beyond `steps`
  std::vector<std::int32_t> steps;       // rows of the window
  std::vector<std::uint8_t> terminated;  // of its last row
  std::vector<std::uint8_t> truncated;
  std::vector<float> weights;

  std::vector<std::vector<std::byte>> bytes;  // what the views borrow
};

/// All that a replay holds, for a checkpoint.
struct ReplayContents {
  std::vector<std::int64_t> heads;  // rows that were appended, of each column
  std::vector<std::uint8_t> begun;  // whether there is a first observation, of each column
  std::vector<std::byte> rows;      // of each column, from the oldest to the newest observation
  std::vector<std::uint64_t>
      weights;                 // of each of them, in units of 2^-32; empty unless prioritised
  std::uint64_t greatest = 0;  // weight that was ever set
};

/// The same, borrowed.
struct ReplayContentsView {
  std::span<const std::int64_t> heads;
  std::span<const std::uint8_t> begun;
  std::span<const std::byte> rows;
  std::span<const std::uint64_t> weights;
  std::uint64_t greatest = 0;

  ReplayContentsView() = default;
  ReplayContentsView(const ReplayContents& all)  // NOLINT: as a span of a vector
      : heads(all.heads),
        begun(all.begun),
        rows(all.rows),
        weights(all.weights),
        greatest(all.greatest) {}
};

/// A member of a replay, which its process has mapped; a resource.
///
/// Threads, processes: an object is one thread's at a time; others attach() their own, 64 at most. One
/// writer at a time appends to a column.
/// Invariants: a sample is of one row and those that followed it, never torn. Sums of priorities are
/// exact while nobody died, whatever the order of changes.
/// Determinism: samples are a function of what was appended, the priorities and `random`.
/// Death: of a reader, nothing. Of a writer, on any line: the rows before the one that it was writing stay; the
/// column's next writer calls begin(). Of whoever changes priorities: the sums may be off, by which rows are
/// drawn a little too often or too seldom, until somebody calls repair(), as who finds the dead should.
/// Fork: the child attaches anew.
class Replay {
 public:
  static constexpr std::size_t kMostMembers = 64;
  static constexpr std::chrono::milliseconds kPatience{10'000};

  /// Throws InvalidArgument for a spec without room, SystemError when memory is short: all of it is
  /// taken at once.
  static Replay create(const ReplaySpec& spec);
  /// That of another process. Throws Error where the descriptor is of none, InvalidArgument where it is
  /// of another spec, InvalidState where there are too many members.
  static Replay attach(os::Fd fd, const ReplaySpec& spec);
  ~Replay();
  Replay(Replay&& other) noexcept;
  Replay& operator=(Replay&&) = delete;

  const ReplaySpec& spec() const noexcept { return spec_; }
  /// To send to another process.
  int fd() const noexcept { return arena_.fd(); }
  /// Of its memory.
  std::size_t bytes() const noexcept { return arena_.size(); }
  /// What replays of this spec take.
  static std::size_t bytes_of(const ReplaySpec& spec);

  // Writing

  // Both throw InvalidArgument, and append nothing, where there is no such column, or `obs` are not arrays of
  // the spec's with a row `from`.

  /// The column goes on with this observation: row `from` of each leaf. What came before does not lead to it.
  void begin(int column, std::span<const shm::TensorView> obs, std::int64_t from);
  /// One row, and the observation that it led to: row `from` of each leaf. A valid row gets the greatest
  /// priority that was ever set, 1 at the least. Throws InvalidState where the column has not begun.
  void step(int column, const ReplayStep& step, std::span<const shm::TensorView> next_obs,
            std::int64_t from);

  // Reading

  /// Rows that are there, those that are not valid among them.
  std::int64_t size() const;
  /// False where no valid row is there, or none was found in many attempts. Throws InvalidArgument for a
  /// request that cannot be.
  [[nodiscard]] bool sample(const ReplayRequest& request, ReplaySamples& out);

  /// Rows that are gone are left out. `priorities` are positive; those below 2^-32 count as that, those
  /// above limit() as that: 4096, and less in replays of more than a million rows, 64 in those of 16 million.
  /// These three throw InvalidState where the replay is not prioritised, InvalidArgument for a column that it has
  /// not, or another number of priorities than of picks.
  void set_priorities(std::span<const ReplayPick> picks, std::span<const double> priorities);
  double limit() const;
  /// Of a row; 0 where it is gone.
  double priority(const ReplayPick& pick) const;

  // After a death, and for checkpoints

  /// Brings the sums in order, and gives back the places of members whose process has ended. Others go on
  /// sampling and appending meanwhile, but for what they do to priorities, which waits some
  /// milliseconds. Throws InvalidState where a member stays inside a change for `patience`: it was stopped (SIGSTOP).
  void repair(std::chrono::milliseconds patience = kPatience);
  /// What is wrong, in words; nothing should be while nobody writes, and after a death, after repair().
  std::vector<std::string> check() const;

  ReplayContents contents() const;
  /// Nobody else uses it meanwhile. Throws InvalidArgument where they are not of such a replay, and changes nothing.
  void restore(const ReplayContentsView& contents);

 private:
  static constexpr std::size_t kNoMember = kMostMembers;
  using ReplayGate = sync::Gate<kMostMembers>;
  struct Member {
    sync::SystemAtomics::Word64 pid;  // 0: free
    sync::SystemAtomics::Word64 start_time;
    sync::SystemAtomics::Word64 image;
  };
  /// A row as it is stored, read back.
  struct Back {
    float reward;
    bool terminated, truncated, valid;
  };
  class Change;

  Replay(shm::Arena arena, ReplaySpec spec);

  void join();
  void leave() noexcept;
  bool is_alive(std::size_t member) const noexcept;
  void repair_locked(std::chrono::milliseconds patience);
  class Locked;

  sync::RingColumn column(std::uint64_t index) const;
  sync::SumTree tree() const;
  sync::SumTree priorities() const;
  std::size_t place_of(std::uint64_t column, std::uint64_t row) const noexcept;
  std::uint64_t lap_of(std::uint64_t row) const noexcept;

  void gather(std::span<const shm::TensorView> obs, std::int64_t from);
  void write_back(const ReplayStep& step);
  Back read_back() const;
  void finish_row(std::uint64_t column, bool valid);

  void make_room(const ReplayRequest& request, ReplaySamples& out) const;
  bool draw(const ReplayRequest& request, std::uint32_t sample, std::uint32_t attempt,
            ReplayPick& pick, std::uint64_t& weight) const;
  bool draw_by_priority(const ReplayRequest& request, std::uint32_t sample, std::uint64_t bits,
                        ReplayPick& pick, std::uint64_t& weight) const;
  bool copy_window(const ReplayPick& pick, int n_step, std::size_t sample, ReplaySamples& out);

  ReplaySpec spec_;
  sync::RingColumnShape shape_;
  shm::Arena arena_;
  std::size_t columns_offset_ = 0;
  std::size_t me_ = kNoMember;  // of maker_
  os::MakingProcess maker_;
  sync::RobustLock* lock_ = nullptr;
  ReplayGate* gate_ = nullptr;
  Member* members_ = nullptr;
  std::vector<std::byte> front_, back_;  // one row's
  std::vector<std::uint64_t> counts_;  // rows of the columns up to each, while it samples uniformly
};

}  // namespace shoal::collect
