// A training run: iterations of a learner in a thread of its own, evaluations, checkpoints,
// measurements.
//
//   Trainer trainer({envs, eval_envs, config, run_directory});
//   trainer.start();
//   while (!trainer.wait(1s)) show(trainer.status());
//   TrainResult result = trainer.result();
//
// A resumed run ends with the parameters, bit for bit, of one that was never stopped, whether it
// was stopped or killed:
//   - The checkpoint has all of the learner's state; its random numbers are functions of the seed
//     and counters.
//   - Environments are brought back by replaying their actions (replayable_vector_env.h), in the
//     middle of their episodes. Each `replay_limit` steps the run resets all of them with new
//     seeds, resumed or not, so the replay stays short.
//   - Evaluations happen at steps that follow from the configuration, on environments reset with
//     seeds that follow from (seed, step). So they are the same, and so are the best policy and an
//     early stop.
//   - What happens at times (saving) or on request (stopping) has no influence on training.
// With ranks it goes on from rank 0's checkpoint, with as many ranks or, where there are shards,
// others.
//
// It does not hold for actors in processes (a3c.h) and for collectors on other hosts
// (remote_collectors.h): they go on with the parameters, statistics and counts of the checkpoint,
// and with environments that are reset; status().resume is kAnew. Nor for environments that break the rule in replayable_vector_env.h; then the run goes on with
// environments reset, says so, and status().resume is kRestarted. Nor across machines, versions, or
// another number of environments.
//
// Threads: any thread may call status(), poll(), wait() and stop(); one thread constructs, starts
// and destroys. The environments belong to the training thread from start() until wait() returns
// true.
// Death: a killed run loses what came after its last checkpoint, at most `save_every_seconds`, or 20
// times as long as one takes to write where that is more. With ranks the end of one is the others',
// within seconds: wait() throws group::PeerLost.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shoal/group/group.h"
#include "shoal/learn/a3c/actor_processes.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/learn/remote/remote_collectors.h"
#include "shoal/learn/run/scalars.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

struct TrainSetup {
  std::shared_ptr<vector::VectorEnv> envs;       // config.num_envs of them, autoreset on
  std::shared_ptr<vector::VectorEnv> eval_envs;  // may be null: no evaluations, no best policy
  TrainConfig config;
  std::filesystem::path run_directory;
  bool resume = false;  // continue the run in run_directory instead of starting one there
  nlohmann::json about =
      nlohmann::json::object();  // goes into config.json beside "config": the environment's id, …
  std::shared_ptr<ActorProcesses> actors = {};  // of A3C, which has these instead of envs
  /// Of IMPALA and APPO whose collectors are on other hosts, and have the environments.
  std::shared_ptr<RemoteCollectors> collectors = {};
  /// Ranks that train together: `envs` are this one's share of config.num_envs (make_learner.h).
  /// All are told the same; only rank 0 evaluates, and only it reads and writes the run's
  /// directory.
  std::shared_ptr<group::Group> group = {};
};

enum class ResumeKind {
  kNone,       // a new run
  kPending,    // the environments are not back yet
  kExact,      // they are where they stood
  kRestarted,  // they could not be brought back, and were reset
  kAnew,  // they are those of actors or collectors, which begin with environments that were reset
};

struct TrainStatus {
  enum class Phase { kReady, kTraining, kEvaluating, kEnded };
  Phase phase = Phase::kReady;
  ResumeKind resume = ResumeKind::kNone;
  std::int64_t total_steps = 0;
  double seconds = 0;                 // of training so far, earlier sessions included
  double steps_per_second = 0;        // recently, learning included
  IterationStats last;                // the last iteration's; zeros before the first
  std::optional<double> eval_return;  // the last evaluation's mean
  std::int64_t eval_step = 0;
  std::optional<double> best_return;  // the mean return for which checkpoints/best was kept
  std::int64_t best_step = 0;
};

struct TrainResult {
  enum class Ending { kBudget, kTarget, kStopped };
  Ending ending = Ending::kStopped;
  std::filesystem::path run_directory;
  std::int64_t steps = 0;
  std::int64_t episodes = 0;
  double seconds = 0;
  /// Of the final evaluation of the best policy; when there was none, of the last training
  /// episodes. Absent before any.
  std::optional<double> mean_return;
  std::optional<double> std_return;  // absent when mean_return is, and of training episodes
  int evaluated_episodes = 0;        // 0: mean_return is of training episodes
  std::optional<double> best_return;
  std::int64_t best_step = 0;
};

/// "budget", "target", "stopped".
std::string name(TrainResult::Ending ending);
nlohmann::json to_json(const TrainResult& result);

class Trainer {
 public:
  /// Checks everything that can be checked before the first step, locks the run directory and, to
  /// resume, reads the checkpoint. Throws InvalidArgument, InvalidState, CorruptFile, SystemError.
  explicit Trainer(TrainSetup setup);
  /// Stops and joins.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Begins in a new thread. Throws InvalidState the second time.
  void start();
  /// Asks the run to end, resumable, after the iteration under way; no final evaluation.
  /// Idempotent.
  void stop() noexcept;
  /// True once the run has ended. Throws what made it fail, each time it is asked.
  bool wait(std::optional<std::chrono::nanoseconds> timeout = {});

  TrainStatus status() const;
  /// What was measured since the last call; at most the last 100,000 records.
  std::vector<ScalarRecord> poll();
  /// Throws InvalidState before the end, and what made the run fail.
  TrainResult result() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
