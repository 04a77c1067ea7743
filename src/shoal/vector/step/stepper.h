// The environments of one worker, as the worker loop sees them: native ones, or Python ones through
// the bindings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/process/error_report.h"
#include "shoal/vector/step/rows.h"

namespace shoal::vector {

/// What a worker tells about its environments before there is any shared memory.
struct Hello {
  env::Space observation_space;
  env::Space action_space;
  std::vector<std::byte>
      extra;  // for the face above: pickled Gymnasium spaces, metadata, render mode
};

/// Where a stepper says which environment it is in, so that a failure, a death or a missed deadline
/// can be blamed on it, and which row it is writing, so that nobody reads a row that a dead worker
/// left half written.
///
/// A value that borrows two words: where, and since when. A call is a look at the coarse clock and
/// two plain stores; the fences cost nothing, they hold the compiler back.
///
/// Memory ordering: the time is stored first, and the place is a release ([marker]): who reads the
/// place and then the time finds one that is not older.
///
/// Death: a killed process has done a prefix of its program, so the word and the row agree.
/// Threads: one writes, the worker's; any reads.
/// Processes: the words lie where the caller reads them too: in the worker's cell.
class EnvMarker {
 public:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kAllRows = -2;
  static constexpr std::int32_t kWriting = 1 << 30;
  static constexpr std::int32_t kResetting = 1 << 29;

  EnvMarker() = default;
  /// `since` may be null: nobody asks how long.
  explicit EnvMarker(std::atomic<std::int32_t>* word,
                     std::atomic<std::uint64_t>* since = nullptr) noexcept
      : word_(word), since_(since) {}

  /// The environment of `row` runs its own code from now on; the row is whole.
  void at(int row) const noexcept {
    tick();
    set(row);
  }
  /// The same, and its code is that of a reset.
  void resetting(int row) const noexcept {
    tick();
    set(row | kResetting);
  }
  /// The observation of `row` is being written.
  void writing(int row) const noexcept { set(row | kWriting); }
  /// All rows of this stepper are being stepped and written at once.
  void writing_all() const noexcept {
    tick();
    set(kAllRows);
  }
  /// Nothing is going on that could be blamed on one environment.
  void none() const noexcept {
    tick();
    set(kNone);
  }

  /// The row that is blamed, or kNone.
  static int blamed(std::int32_t word) noexcept {
    return word < 0 ? kNone : word & ~(kWriting | kResetting);
  }
  static bool in_reset(std::int32_t word) noexcept { return word >= 0 && (word & kResetting) != 0; }
  /// True when `row` may be half written.
  static bool torn(std::int32_t word, int row) noexcept {
    return word == kAllRows || word == (row | kWriting);
  }
  std::int32_t word() const noexcept {
    return word_ == nullptr ? kNone : word_->load(std::memory_order_relaxed);
  }

 private:
  void tick() const noexcept {
    if (since_ != nullptr) since_->store(os::coarse_now_ns(), std::memory_order_relaxed);
  }
  void set(std::int32_t value) const noexcept {
    if (word_ == nullptr) return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    word_->store(value, std::memory_order_release);  // [marker]
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  std::atomic<std::int32_t>* word_ = nullptr;
  std::atomic<std::uint64_t>* since_ = nullptr;
};

/// Owns environments [lo, lo + count()) of the batch and reads and writes exactly those rows.
///
/// An exception thrown by reset_range(), step_range() or request() is reported to the caller with
/// the environment that the marker names. The environments before that one have been stepped, those
/// after it have not. The stepper stays usable: for the other environments where the marker names
/// one and can_rebuild() is true, else for request() and for destruction.
///
/// Threads: one at a time, but for step_range() and reset_range() of a divisible stepper.
/// Processes: the one that has its environments: a worker's, or the caller's own.
/// Death: of its process: the marker names the environment that it was in, and the row that it was
/// writing.
class Stepper {
 public:
  virtual ~Stepper() = default;

  virtual const Hello& hello() const = 0;
  virtual int count() const = 0;

  /// Called once, when the rows exist. `lo` is the row of this stepper's first environment.
  virtual void attach(const Rows& rows, int lo, EnvMarker marker) = 0;

  /// From now on observations go to set `set` of the rows. The others need not be known to a
  /// stepper that is given rows with one set only.
  virtual void select_obs(int set) { SHOAL_CHECK(set == 0, "this stepper knows one set of rows"); }

  /// Come before the ranges of one reset or step: what the last one had to say is forgotten.
  virtual void begin_reset() {}
  virtual void begin_step() {}

  /// Resets those of environments [lo, hi) of this stepper whose row has `reset_mask` set, with
  /// their row's seed where `has_seed` is set. Writes obs, reward 0, terminated, truncated, reset
  /// and has_final 0 of those rows, and nothing of the others.
  virtual void reset_range(int lo, int hi) = 0;

  /// Steps environments [lo, hi) of this stepper with their rows' actions, with autoreset as the
  /// rows say (autoreset.h).
  virtual void step_range(int lo, int hi) = 0;
  /// True where these two may be called for disjoint ranges by several threads at the same time,
  /// with nothing to begin before.
  virtual bool divisible() const { return false; }

  void reset() {
    begin_reset();
    reset_range(0, count());
  }
  void step() {
    begin_step();
    step_range(0, count());
  }

  /// Whether what one of the calls above threw only ended it, as Ctrl-C does: nothing is wrong with the environments, and a
  /// reset of all begins anew.
  virtual bool is_interrupt(const std::exception_ptr& /*thrown*/) const { return false; }

  /// Whether one environment can be replaced while the others go on.
  virtual bool can_rebuild() const { return false; }
  /// Environment `i` has failed: lets it go, with what it said in this reset or step. Only where
  /// can_rebuild(). Does not throw for what the environment does while it is closed.
  virtual void discard(int /*i*/) {}
  /// Whether `i` was discarded, and nothing was put in its place.
  virtual bool is_gone(int /*i*/) const { return false; }
  /// Adds to the report of environment `i`'s failure what this knows of its episode: its last seed, its steps.
  virtual void complete(int /*i*/, process::ErrorReport& /*report*/) const {}
  /// Makes a new environment in the place of `i`, discarding what is there. It has not been reset.
  /// Throws what making it throws.
  virtual void rebuild(int i);

  /// Closes the environments, all of them whatever some raise, and returns what those raised.
  /// Afterwards only destruction is allowed, which closes what this has not.
  virtual std::vector<process::ErrorReport> close() { return {}; }

  /// While set, same-step autoreset holds its resets back: an environment whose episode ends is
  /// reset by its next step instead, as in next-step mode.
  virtual void hold_resets(bool /*hold*/) {}

  /// What the environments carry from one episode to the next (their random generators), for a
  /// stepper of the same environments in another process; taken between episodes. Empty: nothing.
  virtual std::vector<std::byte> hand_over() { return {}; }
  /// Once, after attach(): the next step of each environment is its reset, unless that was asked
  /// for before.
  virtual void take_over(std::span<const std::byte> /*handed*/) {}

  /// Options of explicit resets from now on, or of the next one of `row` (the batch's) alone, as a JSON
  /// object of numbers; none where it is empty. Throws InvalidArgument for options that the
  /// environments do not take.
  virtual void set_reset_options(std::string_view options, std::optional<int> row);
  /// Throws what set_reset_options() would.
  virtual void check_reset_options(std::string_view options) const;

  /// The environment of `row` (the batch's) with all that decides how it goes on: its own state,
  /// its row, its episode, its pending autoreset; load() of that, into any environment of the same
  /// kind, continues with the same bits. Throw InvalidState where the environment does not support
  /// it, InvalidArgument for bytes that are not of save().
  virtual std::vector<std::byte> save(int row);
  virtual void load(int row, std::span<const std::byte> state);

  /// What the last reset or step has to say beyond its rows (the infos), in the face's own format;
  /// empty when there is nothing. Asked for once after each, by the worker loop; valid until the
  /// next one begins.
  virtual std::span<const std::byte> info() { return {}; }

  /// Anything else, by message: attributes, method calls, rendering, options of the next reset. The
  /// bytes are the face's own, both ways.
  virtual std::vector<std::byte> request(std::span<const std::byte> message) = 0;
};

}  // namespace shoal::vector
