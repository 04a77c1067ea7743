// One session of a training run, on the calling thread: what Trainer's thread does.
//
//   while not over:
//     evaluate if due; stop if asked; save if due; reset all if the replay grew too long; iterate
//   save; final evaluation of the best policy
//
// Threads: one; `stop` may be requested from any.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>

#include "shoal/learn/checkpoint/checkpoint.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/run/evaluator.h"
#include "shoal/learn/run/ranks.h"
#include "shoal/learn/run/replayable_vector_env.h"
#include "shoal/learn/run/run_directory.h"
#include "shoal/learn/run/train_journal.h"
#include "shoal/learn/run/trained_policy.h"
#include "shoal/learn/run/trainer.h"
#include "shoal/os/clock.h"

namespace shoal::learn {

/// Seconds from the end of a periodic save, whose writing took `took`, to the next one: `every`, or 20
/// times as long as it took, so that it takes at most a twentieth of a run. With `every` 0 no such rest.
double rest_between_saves(double every, double took) noexcept;

class TrainingRun {
 public:
  /// As Trainer's constructor. Borrows `journal`.
  TrainingRun(TrainSetup setup, TrainJournal& journal);

  /// Once. What it throws, other ranks are told.
  TrainResult run(const std::stop_token& stop);

 private:
  /// What the evaluations have found; part of a checkpoint.
  struct Standing {
    std::int64_t evaluated_step = 0;
    std::optional<double> eval_return;
    std::optional<double> eval_std;
    int eval_episodes = 0;
    std::optional<double> best_return;
    std::int64_t best_step = 0;
    std::optional<double> reached_target;  // the target that was reached
  };

  enum class Purpose : std::uint32_t { kEvaluation, kFinal };

  const env::Space& observation_space() const;
  const env::Space& action_space() const;
  std::unique_ptr<Learner> make_its_learner();
  TrainResult train(const std::stop_token& stop);
  group::Group* group() const noexcept;  // nullptr: this process trains alone
  Orders orders(const std::stop_token& stop);
  std::filesystem::path last() const { return setup_.run_directory / "checkpoints" / "last"; }
  void open_directory();
  LearnerState read_checkpoint();
  void load(LearnerState learner);
  std::string told_anew() const;
  void place_environments();
  void iterate();
  void limit_replay();
  bool evaluation_due() const;
  bool over() const;
  bool paused() const;
  void tell_of_cuts(const Evaluation& evaluation, std::int64_t longest);
  void evaluate_now(const std::stop_token& stop);
  Evaluation run_evaluation(ActingPolicy& policy, int episodes, Purpose purpose,
                            const std::stop_token& stop);
  void keep_best(double mean_return);
  void save();
  Error diverged(const std::string& how) const;
  void require_finite(const LearnerState& learner) const;
  nlohmann::json state_json(const LearnerState& learner) const;
  TrainResult finish(TrainResult::Ending ending, const std::stop_token& stop);
  void final_evaluation(TrainResult& result, const std::stop_token& stop);
  void stand_by_best();
  void forget_best();
  /// Nothing where no evaluation has kept one, or somebody has taken it away.
  std::optional<TrainedPolicy> best_policy();
  void publish_standing();
  void record(ScalarRecord scalars);
  double seconds() const;

  TrainSetup setup_;
  TrainJournal& journal_;
  std::optional<RunDirectory> directory_;    // of rank 0
  std::optional<ReplayableVectorEnv> envs_;  // none where actors have their own
  std::unique_ptr<Learner> learner_;
  std::optional<Checkpoint> checkpoint_;  // to resume from, until the environments are in place
  Standing standing_;
  std::optional<Evaluation> confirmation_;  // the evaluation that reached the target
  bool has_told_of_cuts_ = false;
  IterationStats last_;
  EndedEpisodes ended_;  // since the last record; part of a checkpoint
  double earlier_seconds_ = 0;
  std::int64_t session_start_step_ = 0;
  os::Clock::time_point started_ = os::Clock::now();
  os::Clock::time_point saved_ = os::Clock::now();
  double write_seconds_ = 0;  // of the last save
  double recent_rate_ = 0;
};

}  // namespace shoal::learn
