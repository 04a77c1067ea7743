#include "shoal/learn/run/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>

#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/checkpoint/durable_file.h"
#include "shoal/learn/run/run_directory.h"
#include "shoal/learn/run/trained_policy.h"
#include "shoal/learn/run/training_run.h"
#include "shoal/learn/testing/temporary_directory.h"
#include "shoal/os/testing/message_of.h"
#include "shoal/vector/testing/thread_launcher.h"

namespace shoal::learn {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using vector::Backend;
using vector::VectorEnv;

std::shared_ptr<VectorEnv> make(const std::string& id, int num_envs,
                                Backend backend = Backend::kSerial) {
  return VectorEnv::create(id, {.num_envs = num_envs, .num_workers = 2, .backend = backend});
}

/// Everything on that has state: normalised observations and rewards, schedules, evaluations.
TrainConfig small_config(const std::string& algorithm = "ppo") {
  TrainConfig config;
  apply_overrides({{"algorithm", algorithm}}, config);
  if (algorithm == "ppo")
    apply_overrides({{"batch_size", 64}, {"epochs", 2}, {"clip_range_schedule", "linear"}}, config);
  else
    apply_overrides({{"log_interval", 3}}, config);  // iterations between records are counted, too
  if (to_flat_json(config).contains("deterministic"))
    apply_overrides({{"deterministic", true}}, config);
  apply_overrides({{"total_steps", 2000},
                   {"num_envs", 4},
                   {"num_steps", 50},
                   {"learning_rate_schedule", "linear"},
                   {"normalize_obs", true},
                   {"normalize_reward", true},
                   {"policy_hidden", {16}},
                   {"eval_every", 700},
                   {"eval_episodes", 3},
                   {"eval_envs", 2},
                   {"final_episodes", 3},
                   {"seed", 5}},
                  config);
  const auto has = [&](const char* option) { return to_flat_json(config).contains(option); };
  if (has("value_hidden")) apply_overrides({{"value_hidden", {16}}}, config);
  if (has("lstm_size")) apply_overrides({{"lstm_size", 16}}, config);
  if (has("buffer_size"))
    apply_overrides(
        {{"buffer_size", 600}, {"batch_size", 16}, {"prioritized", true}, {"n_step", 2}}, config);
  return config;
}

class TrainerTest : public testing::Test {
 protected:
  fs::path run(const std::string& name) { return temporary_.path() / name; }

  TrainSetup setup(const std::string& name, const TrainConfig& config, bool resume = false) {
    return {.envs = make(id_, config.num_envs),
            .eval_envs = make(id_, config.eval_envs),
            .config = config,
            .run_directory = run(name),
            .resume = resume};
  }

  TrainResult train(TrainSetup setup) {
    Trainer trainer(std::move(setup));
    trainer.start();
    trainer.wait();
    resume_kind_ = trainer.status().resume;
    return trainer.result();
  }

  static std::string text_of(const fs::path& path) {
    const auto bytes = read_file(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// A run's files that do not depend on time.
  std::string arrays_of_run(const std::string& name, const std::string& which = "last") {
    const auto directory = run(name) / "checkpoints" / which;
    auto all = text_of(directory / "policy.safetensors");
    if (which == "last")
      all += text_of(directory / "optim.safetensors") + text_of(directory / "envs.safetensors");
    return all;
  }

  std::vector<json> progress(const std::string& name) {
    std::ifstream file(run(name) / "progress.jsonl");
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(json::parse(line));
      for (const char* timed : {"seconds", "time/fps", "time/time_elapsed", "charts/SPS"})
        lines.back().erase(timed);
    }
    return lines;
  }

  TemporaryDirectory temporary_;
  std::string id_ = "shoal/CartPole-v1";
  ResumeKind resume_kind_ = ResumeKind::kNone;
};

TEST_F(TrainerTest, ARunLeavesItsWholeDirectoryBehind) {
  const auto result = train(setup("a", small_config()));
  EXPECT_EQ(result.ending, TrainResult::Ending::kBudget);
  EXPECT_EQ(result.steps, 2000);
  EXPECT_GT(result.episodes, 0);
  EXPECT_TRUE(result.mean_return.has_value());
  EXPECT_TRUE(result.std_return.has_value());
  EXPECT_EQ(result.evaluated_episodes, 3);
  for (const char* file :
       {"config.json", "progress.jsonl", "result.json", "checkpoints/last/state.json",
        "checkpoints/last/policy.safetensors", "checkpoints/best/policy.safetensors"})
    EXPECT_TRUE(fs::exists(run("a") / file)) << file;
  EXPECT_EQ(read_run_config(run("a"))["config"], to_flat_json(small_config()));

  const auto lines = progress("a");
  std::vector<int> evaluated;
  for (const auto& line : lines)
    if (line.contains("eval/mean_reward")) evaluated.push_back(line["step"]);
  EXPECT_THAT(evaluated, testing::ElementsAre(800, 1400, 2000));
  EXPECT_TRUE(lines.back().contains("eval/mean_reward"));
  for (const char* name : {"rollout/ep_rew_mean", "time/iterations", "train/approx_kl",
                           "train/entropy_loss", "charts/learning_rate", "losses/clipfrac"})
    EXPECT_TRUE(lines[lines.size() - 2].contains(name)) << name;
}

std::shared_ptr<ActorProcesses> two_actors(const VectorEnv& like) {
  process::EntryTable entries;
  entries.add("wait", [](process::WorkerContext& context) {
    os::Message message;
    while (context.channel.recv(message) == os::RecvOutcome::kMessage) {
    }
    return 0;
  });
  ActorProcesses::Setup setup{
      .launcher = std::make_shared<vector::testing::ThreadLauncher>(std::move(entries)),
      .actors = {},
      .observation_space = like.single_observation_space(),
      .action_space = like.single_action_space()};
  for (int actor = 0; actor < 2; ++actor) {
    process::WorkerSpec spec;
    spec.entry = "wait";
    spec.first_env = 2 * actor;
    spec.num_envs = 2;
    setup.actors.push_back(std::move(spec));
  }
  return std::make_shared<ActorProcesses>(std::move(setup));
}

TEST_F(TrainerTest, ActorsAreOfA3cAloneAndTakeThePlaceOfEnvironments) {
  const auto error = [&](const std::string& algorithm, int num_envs,
                         bool with_envs) -> std::string {
    auto config = small_config(algorithm);
    config.num_envs = num_envs;
    config.learner().normalize_obs = false;
    auto its = setup("a", config);
    its.actors = two_actors(*its.envs);
    if (!with_envs) its.envs.reset();
    try {
      const Trainer trainer(std::move(its));
      return "";
    } catch (const InvalidArgument& refused) {
      return refused.what();
    }
  };
  EXPECT_THAT(error("ppo", 4, false), HasSubstr("actors are for a3c, not for ppo"));
  EXPECT_THAT(error("a3c", 4, true), HasSubstr("environments, or actors that have them"));
  EXPECT_THAT(error("a3c", 6, false), HasSubstr("num_envs is 6, but there are 4 environments"));
  EXPECT_EQ(error("a3c", 4, false), "");
}

class TrainerOf : public TrainerTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "sac") id_ = "shoal/Pendulum-v1";
  }
};

INSTANTIATE_TEST_SUITE_P(Algorithms, TrainerOf, testing::ValuesIn(algorithm_names()),
                         [](const auto& info) { return info.param; });

TEST_P(TrainerOf, StoppedAndResumedAtAnyIterationEqualsUninterrupted) {
  const auto config = small_config(GetParam());
  const auto whole = train(setup("whole", config));
  for (int pause : {1, 799, 801, 1400, 1800}) {  // before, at and after evaluations
    const auto name = "paused" + std::to_string(pause);
    auto first = config;
    first.pause_at_step = pause;
    const auto stopped = train(setup(name, first));
    EXPECT_EQ(stopped.ending, TrainResult::Ending::kStopped);
    EXPECT_NE(arrays_of_run(name), arrays_of_run("whole"));
    {
      const Trainer waiting(setup(name, config, true));
      EXPECT_EQ(waiting.status().resume, ResumeKind::kPending);
      EXPECT_EQ(waiting.status().last.steps, stopped.steps);
    }
    const auto resumed = train(setup(name, config, true));
    EXPECT_EQ(resume_kind_, ResumeKind::kExact);
    EXPECT_EQ(arrays_of_run(name), arrays_of_run("whole")) << pause;
    EXPECT_EQ(arrays_of_run(name, "best"), arrays_of_run("whole", "best")) << pause;
    EXPECT_EQ(progress(name), progress("whole")) << pause;
    EXPECT_EQ(resumed.mean_return, whole.mean_return);
    EXPECT_EQ(resumed.episodes, whole.episodes);
    EXPECT_EQ(resumed.best_step, whole.best_step);
  }
}

TEST_F(TrainerTest, ACheckpointFromBeforeThereWasAChoiceOfAlgorithmsResumesExactly) {
  auto config = small_config();
  train(setup("whole", config));
  config.pause_at_step = 1000;
  train(setup("old", config));
  const auto file = run("old") / "checkpoints" / "last" / "state.json";
  auto state = json::parse(text_of(file));
  for (const char* name :
       {"algorithm", "optimizer", "rmsprop_alpha", "rmsprop_eps", "log_interval"})
    ASSERT_EQ(state["config"].erase(name), 1U) << name;
  state["config"]["fused"] = false;  // an option of then
  ASSERT_EQ(state["episodes"].erase("unrecorded"), 1U);
  replace_file(file, state.dump());
  EXPECT_EQ(TrainedPolicy::load(file.parent_path()).config(), config);
  train(setup("old", small_config(), true));
  EXPECT_EQ(resume_kind_, ResumeKind::kExact);
  EXPECT_EQ(arrays_of_run("old"), arrays_of_run("whole"));
}

TEST_F(TrainerTest, AnIntervalOfRecordsKeepsWhatHappenedBetween) {
  auto every = small_config();
  train(setup("every", every));
  auto some = every;
  some.learner().log_interval = 4;
  train(setup("some", some));
  EXPECT_EQ(arrays_of_run("some"), arrays_of_run("every")) << "records change nothing";
  const auto records = [&](const std::string& name) {
    std::vector<json> with_losses;
    for (const auto& line : progress(name))
      if (line.contains("train/loss")) with_losses.push_back(line);
    return with_losses;
  };
  const auto all = records("every");
  const auto fourths = records("some");
  ASSERT_EQ(all.size(), 10U);
  ASSERT_EQ(fourths.size(), 3U) << "after iterations 4, 8 and, the last, 10";
  for (const auto& [fourth, one] : {std::pair(fourths[0], all[3]), std::pair(fourths[2], all[9])}) {
    EXPECT_EQ(fourth["step"], one["step"]);
    EXPECT_EQ(fourth["train/loss"], one["train/loss"]);
    EXPECT_EQ(fourth["rollout/ep_rew_mean"], one["rollout/ep_rew_mean"]);
  }
  EXPECT_TRUE(fourths[0].contains("charts/episodic_return"));
  EXPECT_NEAR(fourths[0]["charts/episodic_return"].get<double>(),
              fourths[0]["rollout/ep_rew_mean"].get<double>(), 1e-9)
      << "fewer than 100 episodes: the mean of all is that of the interval";
}

TEST_F(TrainerTest, ResumedTwiceAndOnAnotherBackendEqualsUninterrupted) {
  id_ = "shoal/Pendulum-v1";
  auto config = small_config();
  train(setup("whole", config));
  config.pause_at_step = 600;
  train(setup("parts", config));
  config.pause_at_step = 1100;
  auto second = setup("parts", config, true);
  second.envs = make(id_, config.num_envs, Backend::kThread);
  train(std::move(second));
  config.pause_at_step.reset();
  train(setup("parts", config, true));
  EXPECT_EQ(arrays_of_run("parts"), arrays_of_run("whole"));
}

TEST_F(TrainerTest, ResumeIsExactAcrossTheReplayLimit) {
  auto config = small_config();
  config.learner().total_steps = 45'000;
  config.learner().num_steps = 1500;
  config.num_envs = 2;
  std::get<PpoConfig>(config.algorithm).batch_size = 1500;
  std::get<PpoConfig>(config.algorithm).epochs = 1;
  config.replay_limit = 1;  // the least: 10,000 steps of each environment
  config.eval_every = 0;
  train(setup("whole", config));
  config.pause_at_step = 24'000;  // one reset of all at 21,000
  train(setup("parts", config));
  EXPECT_EQ(Checkpoint::read(run("parts") / "checkpoints" / "last", Checkpoint::Part::kAll)
                .envs.at("actions")
                .spec.shape[0],
            1500);
  config.pause_at_step.reset();
  train(setup("parts", config, true));
  EXPECT_EQ(resume_kind_, ResumeKind::kExact);
  EXPECT_EQ(arrays_of_run("parts"), arrays_of_run("whole"));
}

TEST(TrainingRun, SavingTakesAtMostATwentiethOfARunUnlessItIsAskedForAfterEachIteration) {
  EXPECT_EQ(rest_between_saves(60, 0), 60) << "none has been made";
  EXPECT_EQ(rest_between_saves(60, 3), 60);
  EXPECT_EQ(rest_between_saves(60, 15), 300);
  EXPECT_EQ(rest_between_saves(0, 15), 0);
}

TEST_F(TrainerTest, TheLastSaveOfAKilledRunIsEnough) {
  auto config = small_config();
  train(setup("whole", config));
  config.save_every_seconds = 0;
  config.pause_at_step = 1000;
  train(setup("killed", config));
  // What a kill would leave: lines beyond the checkpoint, half a line, a half-written checkpoint.
  std::ofstream(run("killed") / "progress.jsonl", std::ios::app) << "{\"step\": 1200}\n{\"st";
  fs::create_directory(run("killed") / "checkpoints" / "last.tmp-1");
  config.pause_at_step.reset();
  train(setup("killed", config, true));
  EXPECT_EQ(arrays_of_run("killed"), arrays_of_run("whole"));
  EXPECT_EQ(progress("killed"), progress("whole"));
}

TEST_F(TrainerTest, ACompleteRunResumesToTheSameResult) {
  const auto first = train(setup("a", small_config()));
  const auto arrays = arrays_of_run("a");
  const auto again = train(setup("a", small_config(), true));
  EXPECT_EQ(again.mean_return, first.mean_return);
  EXPECT_EQ(again.steps, first.steps);
  EXPECT_EQ(again.ending, TrainResult::Ending::kBudget);
  EXPECT_EQ(arrays_of_run("a"), arrays);
}

TEST_F(TrainerTest, EnvironmentsThatCannotBeReplayedAreRestartedAndItIsSaid) {
  auto config = small_config();
  config.pause_at_step = 1000;
  train(setup("a", config));
  // They will arrive at another observation than the saved one, as if they ignored their seed.
  const auto last = run("a") / "checkpoints" / "last";
  const auto checkpoint = Checkpoint::read(last, Checkpoint::Part::kAll);
  const auto learner = learner_state_of(checkpoint);
  auto arrays = arrays_of(learner, {});
  std::vector<std::vector<std::byte>> copies;
  for (const auto& [name, view] : checkpoint.envs.tensors()) {
    copies.emplace_back(view.bytes.begin(), view.bytes.end());
    if (name == "obs") copies.back()[0] ^= std::byte{1};
    arrays.envs.push_back({name, view.spec, copies.back()});
  }
  write_checkpoint(last, arrays, checkpoint.state);
  // An evaluation after the last checkpoint, which will not be made again.
  const auto best = run("a") / "checkpoints" / "best";
  auto state = Checkpoint::read(best, Checkpoint::Part::kPolicy).state;
  state["evaluation"]["best_return"] = 501;
  state["evaluation"]["best_step"] = 1100;
  arrays.optimizer.clear();
  arrays.envs.clear();
  write_checkpoint(best, arrays, state);
  config.pause_at_step.reset();
  const auto result = train(setup("a", config, true));
  EXPECT_EQ(resume_kind_, ResumeKind::kRestarted);
  EXPECT_EQ(result.steps, 2000);
  EXPECT_EQ(result.best_return, 501);
  EXPECT_EQ(result.best_step, 1100);
  const auto kept = Checkpoint::read(best, Checkpoint::Part::kPolicy).state;
  EXPECT_EQ(kept["evaluation"], state["evaluation"]);
}

TEST_F(TrainerTest, WithoutItsBestPolicyARunGoesOnAndEndsWithTheNextBest) {
  for (const bool damaged : {false, true}) {
    auto config = small_config();
    config.pause_at_step = 1000;
    fs::remove_all(run("a"));
    train(setup("a", config));
    const auto best = run("a") / "checkpoints" / "best";
    if (damaged) {
      std::ofstream(best / "policy.safetensors", std::ios::binary) << "not this";
    } else {
      fs::remove_all(best);
    }
    config.pause_at_step.reset();
    config.eval_every = 0;  // but once, at the end
    const auto result = train(setup("a", config, true));
    EXPECT_EQ(result.steps, 2000);
    EXPECT_EQ(result.evaluated_episodes, config.final_episodes);
    EXPECT_EQ(result.best_step, 2000);
    EXPECT_TRUE(Checkpoint::read(best, Checkpoint::Part::kPolicy).state.contains("step"));
  }
}

TEST_F(TrainerTest, WhatItsNetworkComputesStaysAsItWas) {
  auto config = small_config();
  config.pause_at_step = 1000;
  train(setup("a", config));
  config.learner().normalize_obs = false;
  EXPECT_THAT(os::testing::message_of<CorruptFile>([&] { train(setup("a", config, true)); }),
              HasSubstr("its run had normalize_obs = true, not false"));
}

TEST_F(TrainerTest, AnEarlyStopIsConfirmedByFreshEpisodes) {
  auto config = small_config();
  config.target_return = 1;  // every episode of CartPole returns more
  const auto result = train(setup("a", config));
  EXPECT_EQ(result.ending, TrainResult::Ending::kTarget);
  EXPECT_EQ(result.steps, 800);
  EXPECT_EQ(result.evaluated_episodes, config.final_episodes);
  EXPECT_EQ(result.best_step, 800);
  const auto again = train(setup("a", config, true));
  EXPECT_EQ(again.ending, TrainResult::Ending::kTarget);
  EXPECT_EQ(again.mean_return, result.mean_return);
  config.target_return = 1e6;  // another target: the run goes on
  EXPECT_EQ(train(setup("a", config, true)).steps, 2000);
}

TEST_F(TrainerTest, WithoutEvaluationEnvironmentsTheTrainingReturnDecides) {
  auto config = small_config();
  config.learner().total_steps = 20'000;
  config.target_return = 1;
  auto without = setup("a", config);
  without.eval_envs.reset();
  const auto result = train(std::move(without));
  EXPECT_EQ(result.ending, TrainResult::Ending::kTarget);
  EXPECT_GE(result.episodes, 100);
  EXPECT_EQ(result.evaluated_episodes, 0);
  EXPECT_FALSE(fs::exists(run("a") / "checkpoints" / "best"));
}

TEST_F(TrainerTest, AStopRequestEndsTheRunResumably) {
  auto config = small_config();
  config.learner().total_steps = 100'000'000;
  Trainer trainer(setup("a", config));
  trainer.start();
  std::vector<ScalarRecord> seen;
  while (seen.empty()) {  // at least one iteration
    seen = trainer.poll();
    ASSERT_FALSE(trainer.wait(1ms));
  }
  trainer.stop();
  EXPECT_TRUE(trainer.wait());
  EXPECT_EQ(trainer.result().ending, TrainResult::Ending::kStopped);
  EXPECT_GT(trainer.result().steps, 0);
  EXPECT_EQ(trainer.status().phase, TrainStatus::Phase::kEnded);
  const auto checkpoint =
      Checkpoint::read(run("a") / "checkpoints" / "last", Checkpoint::Part::kAll);
  EXPECT_EQ(checkpoint.state["step"], trainer.result().steps);
}

TEST_F(TrainerTest, AStopBeforeTheStartHolds) {
  Trainer trainer(setup("a", small_config()));
  trainer.stop();
  trainer.start();
  trainer.wait();
  EXPECT_EQ(trainer.result().steps, 0);
}

TEST_F(TrainerTest, ADestroyedTrainerStopsItsRun) {
  auto config = small_config();
  config.learner().total_steps = 100'000'000;
  Trainer(setup("a", config)).start();
  EXPECT_TRUE(fs::exists(run("a") / "checkpoints" / "last"));
}

/// A VectorEnv whose environments throw, or pay a reward that is no number, at a given step.
class FailingEnvs final : public VectorEnv {
 public:
  enum class How { kThrow, kNotANumber };
  FailingEnvs(std::shared_ptr<VectorEnv> envs, int steps, How how)
      : envs_(std::move(envs)), left_(steps), how_(how) {}
  int num_envs() const noexcept override { return envs_->num_envs(); }
  int num_workers() const noexcept override { return 1; }
  const env::Space& single_observation_space() const noexcept override {
    return envs_->single_observation_space();
  }
  const env::Space& single_action_space() const noexcept override {
    return envs_->single_action_space();
  }
  vector::AutoresetMode autoreset_mode() const noexcept override { return envs_->autoreset_mode(); }
  std::span<const shm::TensorView> actions() const noexcept override { return envs_->actions(); }
  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask) override {
    envs_->reset_async(seeds, mask);
  }
  void step_async() override {
    if (--left_ == 0 && how_ == How::kThrow) throw Error("the environment broke");
    envs_->step_async();
  }
  vector::Batch wait(std::optional<std::chrono::nanoseconds> timeout) override {
    auto batch = envs_->wait(timeout);
    if (left_ == 0 && how_ == How::kNotANumber) {
      reward_.assign(batch.reward.begin(), batch.reward.end());
      reward_[0] = std::numeric_limits<double>::quiet_NaN();
      batch.reward = reward_;
    }
    return batch;
  }
  void close() noexcept override { envs_->close(); }

 private:
  std::shared_ptr<VectorEnv> envs_;
  int left_;
  How how_;
  std::vector<double> reward_;
};

TEST_F(TrainerTest, ARewardThatIsNotFiniteEndsARunWhoseCheckpointIsFromBefore) {
  auto config = small_config();
  config.learner().normalize_reward = false;
  config.save_every_seconds = 0;
  auto poisoned = setup("a", config);
  poisoned.envs = std::make_shared<FailingEnvs>(poisoned.envs, 275, FailingEnvs::How::kNotANumber);
  try {
    train(std::move(poisoned));
    FAIL() << "a reward that is no number went unnoticed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("environment 0 gave a reward that is not finite"));
  }
  EXPECT_EQ(Checkpoint::read(run("a") / "checkpoints" / "last", Checkpoint::Part::kAll)
                .state["iteration"],
            5);
}

TEST_F(TrainerTest, AFailureReachesTheCallerAndTheRunCanBeResumed) {
  const auto config = small_config();
  train(setup("whole", config));
  auto failing = setup("failing", config);
  failing.config.save_every_seconds = 0;
  failing.envs = std::make_shared<FailingEnvs>(failing.envs, 276, FailingEnvs::How::kThrow);
  Trainer trainer(std::move(failing));
  trainer.start();
  EXPECT_THROW(
      try { trainer.wait(); } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "the environment broke");
        throw;
      },
      Error);
  EXPECT_THROW(trainer.wait(), Error);
  EXPECT_THROW(trainer.result(), Error);
  EXPECT_EQ(trainer.status().phase, TrainStatus::Phase::kEnded);
  train(setup("failing", config, true));  // the failed trainer still exists
  EXPECT_EQ(arrays_of_run("failing"), arrays_of_run("whole"));
}

TEST_F(TrainerTest, MistakesAreRefusedBeforeTheFirstStep) {
  auto wrong = small_config();
  wrong.num_envs = 3;
  auto too_many = setup("a", wrong);
  too_many.envs = make(id_, 4);
  EXPECT_THROW(Trainer{std::move(too_many)}, InvalidArgument);
  auto other_spaces = setup("a", small_config());
  other_spaces.eval_envs = make("shoal/Pendulum-v1", 2);
  EXPECT_THROW(Trainer{std::move(other_spaces)}, InvalidArgument);
  auto same = setup("a", small_config());
  same.eval_envs = same.envs;
  EXPECT_THROW(Trainer{std::move(same)}, InvalidArgument);
  EXPECT_THROW(Trainer{setup("a", small_config(), true)}, InvalidArgument);
  EXPECT_FALSE(fs::exists(run("a") / "checkpoints"));
  EXPECT_THROW(Trainer(setup("b", small_config())).wait(), InvalidState);
}

TEST_F(TrainerTest, ACheckpointOfAnotherNetworkOrANumberOfEnvironmentsIsRefused) {
  train(setup("a", small_config()));
  auto other = small_config();
  other.learner().policy_hidden = {8};
  EXPECT_THROW(Trainer{setup("a", other, true)}, CorruptFile);
  auto more = small_config();
  more.num_envs = 5;
  EXPECT_THROW(Trainer{setup("a", more, true)}, CorruptFile);
  const auto state = run("a") / "checkpoints" / "last" / "state.json";
  auto json = json::parse(text_of(state));
  json.erase("learner");
  replace_file(state, json.dump());
  EXPECT_THROW(Trainer{setup("a", small_config(), true)}, CorruptFile);
}

TEST_F(TrainerTest, ATrainedPolicyActsLikeTheOneThatWasEvaluated) {
  const auto config = small_config();
  const auto result = train(setup("a", config));
  auto policy = TrainedPolicy::load(run("a") / "checkpoints" / "best");
  EXPECT_EQ(policy.steps(), result.best_step);
  EXPECT_EQ(policy.config(), config);
  const auto envs = make(id_, 2);
  EXPECT_EQ(policy.observation_space(), envs->single_observation_space());
  EXPECT_EQ(policy.action_space(), envs->single_action_space());
  const auto evaluation = evaluate(*envs, policy.acting(), true, {.episodes = 4, .seed = 1});
  EXPECT_EQ(evaluation.returns.size(), 4U);
  EXPECT_THROW(TrainedPolicy::load(run("none")), CorruptFile);
}

TEST_F(TrainerTest, LearnsCartPole) {
  auto config = preset("CartPole-v1");
  config.target_return = 475;
  const auto result = train(setup("cartpole", config));
  EXPECT_EQ(result.ending, TrainResult::Ending::kTarget);
  EXPECT_GE(result.mean_return.value_or(0), 475);
  EXPECT_EQ(result.evaluated_episodes, 100);
  EXPECT_LE(result.steps, 100'000);
}

}  // namespace
}  // namespace shoal::learn
