// Steps a vector environment with any Actor and writes what happened into Experience, as the
// environments gave it: nothing is encoded, scaled or left out.
//
//   same-step autoreset   Every row is a transition. next_obs of an episode's last row is its final
//                         observation, obs of the next row the next episode's first.
//   next-step autoreset   The step after an episode's end only resets: its row is not valid.
//   fault                 The row is not valid, and neither is the one that brings the environment
//                         back.
//
// Threads: one at a time. The same environments, seeds and actor give the same experience, whatever
// the backend and the number of workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shoal/collect/actor.h"
#include "shoal/collect/episode_stats.h"
#include "shoal/collect/experience.h"
#include "shoal/collect/progress_board.h"
#include "shoal/vector/vector_env.h"

namespace shoal::collect {

/// Where a collector stands between two collect(), apart from its environments; to be put back.
struct ExperienceCollectorState {
  std::uint64_t steps = 0;
  std::int64_t resets = 0;
  std::int64_t faults = 0;
  std::vector<std::vector<std::byte>> obs;  // all rows of each leaf
  std::vector<std::int64_t> episode;        // under way, one an environment
  std::vector<std::uint8_t> is_first;
  std::vector<double> running_return;
  std::vector<std::int64_t> running_length;
  std::vector<Episode> window;
  std::int64_t finished = 0;
};

/// The rows of a collect(), and what else there is to them.
struct CollectOrder {
  int first = 0;
  int count = 0;
  std::int64_t policy_version = 0;
  /// Of the experience, of the first environment; it may have those of other collectors, too.
  int column = 0;
  /// Where the actor decides, if it is always asked for more environments than the collector has:
  /// one step of all of them, which the caller keeps for this. The collector's own are those from
  /// `stage_column` on; copies of the first of them stand in the other columns.
  const Experience* stage = nullptr;
  int stage_column = 0;
  /// Where rows are counted, and where it may be read that no order up to `number` is to go on.
  ProgressLine* progress = nullptr;
  std::uint64_t number = 0;
};

class ExperienceCollector {
 public:
  /// Borrows `envs`, which are the environments from `first_env` on of `total_envs` (0: these
  /// alone). `timeout`: of a reset or step; TimedOut after it. Throws InvalidArgument for
  /// environments that are not reset, that have parts without arrays, or whose action is not one
  /// array, saying what to do.
  explicit ExperienceCollector(vector::VectorEnv& envs,
                               std::optional<std::chrono::nanoseconds> timeout = {},
                               int first_env = 0, int total_envs = 0);

  /// Of experience that collect() takes, without next_obs, log_prob and value.
  const ExperienceSpec& spec() const noexcept { return spec_; }

  /// Resets every environment, environment i with seeds[i]. What is counted goes on, episodes too.
  void reset(std::span<const std::optional<std::uint64_t>> seeds);

  /// Takes steps of every environment and writes them to rows first … first + count - 1 of `out`,
  /// all of them under `policy_version`. Returns how many: `count`, or at least one where it was
  /// stopped; the rows that are missing are then as leave_out() makes them. Throws what the
  /// environments and the actor throw, and then needs a reset().
  int collect(Actor& actor, const Experience& out, const CollectOrder& order);

  /// Environments that are decided for at once, in columns of their own.
  struct Cohort {
    ExperienceCollector* collector;
    Actor* actor;
    int column;
  };
  /// Fills rows of all cohorts in turn: while the environments of one are stepped, the next one's
  /// actor decides. Each actor is asked in the order of the steps, and all in the order of the
  /// cohorts. Of `order`, first, count and policy_version count. Throws as collect().
  static void collect_in_turn(std::span<const Cohort> cohorts, const Experience& out,
                              const CollectOrder& order);

  /// Makes rows of this collector's environments zeros that are not valid, of the episodes that are
  /// under way.
  void leave_out(const Experience& out, const CollectOrder& order) const;

  /// Throws InvalidState where collect() would.
  ExperienceCollectorState state() const;
  /// The environments must stand where they stood then. Throws InvalidArgument for another number
  /// of environments or other spaces; nothing has then changed.
  void restore(ExperienceCollectorState state);

  /// Rows so far that only reset an environment, and rows that a fault took.
  std::int64_t resets() const noexcept { return at_.resets; }
  std::int64_t faults() const noexcept { return at_.faults; }
  EpisodeStats& episodes() noexcept { return episodes_; }

 private:
  void require_ready(const char* what) const;
  void require_room(const Experience& out, const CollectOrder& order) const;
  void begin_step(Actor& actor, const Experience& out, const CollectOrder& order, int t);
  void end_step(const Experience& out, int column, int t);
  void decide(Actor& actor, const Experience& out, const CollectOrder& order, int t);
  void decide_on_stage(Actor& actor, const Decision& own, const CollectOrder& order);
  void name_rows(const Experience& out, const CollectOrder& order, int t) const;
  void take_in(const vector::Batch& batch, const Experience& out, int column, int t);
  void keep_next_obs(const vector::Batch& batch, const Experience& out, int column, int t);
  void send_actions(const shm::TensorView& chosen);
  static void copy(std::span<const shm::TensorView> from, std::span<const shm::TensorView> to);

  vector::VectorEnv& envs_;
  std::optional<std::chrono::nanoseconds> timeout_;
  int first_env_;
  int total_envs_;
  ExperienceSpec spec_;
  std::vector<double> low_, high_;  // of a Box of floats, one an element
  bool begun_ = false;              // whether there ever was an episode
  bool ready_ = false;
  bool stepping_ = false;                 // between begin_step() and end_step()
  ExperienceCollectorState at_;           // without what episodes_ holds
  std::vector<shm::TensorView> current_;  // at_.obs
  EpisodeStats episodes_;
  std::vector<std::uint8_t> skip_;
};

}  // namespace shoal::collect
