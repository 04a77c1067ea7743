// What every learner keeps to, whichever its algorithm is.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/learn/run/evaluator.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using vector::AutoresetMode;
using vector::Backend;
using vector::VectorEnv;

constexpr const char* kCartPole = "shoal/CartPole-v1";
constexpr const char* kPendulum = "shoal/Pendulum-v1";
constexpr std::string_view kOverlaps = "_with_overlap";

std::unique_ptr<VectorEnv> make(const char* id, int num_envs, Backend backend = Backend::kSerial,
                                int workers = 0) {
  return VectorEnv::create(id, {.num_envs = num_envs, .num_workers = workers, .backend = backend});
}

class LearnerOf : public testing::TestWithParam<std::string> {
 protected:
  static bool takes_boxes_alone() { return GetParam() == "sac"; }
  static bool overlaps() { return GetParam().ends_with(kOverlaps); }

  /// Environments that it learns.
  static const char* task() { return takes_boxes_alone() ? kPendulum : kCartPole; }

  /// With every part of the state in use.
  static AlgorithmConfig config() {
    TrainConfig run;
    const std::string algorithm =
        GetParam().substr(0, GetParam().size() - (overlaps() ? kOverlaps.size() : 0));
    apply_overrides({{"algorithm", algorithm},
                     {"num_steps", 40},
                     {"learning_rate_schedule", "linear"},
                     {"normalize_obs", true},
                     {"normalize_reward", true}},
                    run);
    if (overlaps()) apply_overrides({{"overlap", true}}, run);
    if (to_flat_json(run).contains("deterministic"))
      apply_overrides({{"deterministic", true}}, run);
    if (to_flat_json(run).contains("buffer_size"))  // which is full within some iterations
      apply_overrides({{"buffer_size", 300},
                       {"learning_starts", 20},
                       {"batch_size", 16},
                       {"policy_hidden", {24}},
                       {"prioritized", true},
                       {"n_step", 3}},
                      run);
    if (to_flat_json(run).contains("lstm_size"))  // in pieces of less than an environment
      apply_overrides({{"lstm_size", 24}, {"batch_size", 16}}, run);
    if (algorithm == "ppo")
      apply_overrides({{"recompute_advantages", true}, {"normalize_returns", true}}, run);
    if (GetParam() == "sac") apply_overrides({{"value_hidden", {24}}}, run);
    if (to_flat_json(run).contains("target_update_interval"))
      apply_overrides({{"target_update_interval", 50}}, run);
    return run.algorithm;
  }

  static std::unique_ptr<Learner> learner(const VectorEnv& envs, const AlgorithmConfig& config,
                                          std::uint64_t seed = 3) {
    return make_learner(envs.single_observation_space(), envs.single_action_space(),
                        envs.num_envs(), config, seed);
  }

  static std::unique_ptr<Learner> learner(const VectorEnv& envs, std::uint64_t seed = 3) {
    return learner(envs, config(), seed);
  }

  static void iterate(Learner& learner, int times) {
    for (int k = 0; k < times; ++k) learner.iterate();
  }

  static double mean_return(Learner& learner) {
    const auto envs = make(task(), 20);
    return evaluate(*envs, learner.acting(), true, {.episodes = 20, .seed = 5}).mean_return();
  }
};

TEST_P(LearnerOf, TheNumberOfWorkersAndTheBackendDoNotChangeABit) {
  auto run = [](Backend backend, int workers) {
    const auto envs = make(task(), 8, backend, workers);
    const auto subject = learner(*envs);
    subject->begin(*envs);
    iterate(*subject, 6);
    return subject->state();
  };
  const LearnerState serial = run(Backend::kSerial, 1);
  EXPECT_GT(serial.counters.at("episodes"), 0);
  for (const int workers : {1, 2, 4})
    EXPECT_EQ(run(Backend::kThread, workers), serial) << workers << " workers";
}

TEST_P(LearnerOf, AnIterationChangesThePolicy) {
  const auto envs = make(task(), 4);
  const auto subject = learner(*envs);
  const LearnerState before = subject->state();
  subject->begin(*envs);
  const IterationStats stats = subject->iterate();
  EXPECT_NE(subject->state().policy, before.policy);
  EXPECT_EQ(stats.iteration, 1);
  EXPECT_EQ(stats.steps, 160);
  EXPECT_GT(stats.grad_norm, 0);
  EXPECT_GT(stats.learning_rate, 0);
}

TEST_P(LearnerOf, SeedsMatter) {
  const auto envs = make(task(), 4);
  EXPECT_NE(learner(*envs, 1)->state().policy, learner(*envs, 2)->state().policy);
}

TEST_P(LearnerOf, ContinuesBitForBitFromItsState) {
  const auto envs = make(task(), 4);
  const auto whole = learner(*envs);
  whole->begin(*envs);
  iterate(*whole, 3);
  const LearnerState saved = whole->state();
  // begin() anew on both sides stands for environments that are brought back to where they were.
  whole->begin(*envs);
  iterate(*whole, 3);

  const auto other_envs = make(task(), 4);
  const auto resumed = learner(*other_envs, 99);
  resumed->load_state(saved);
  EXPECT_EQ(resumed->state(), saved);
  resumed->begin(*other_envs);
  iterate(*resumed, 3);
  EXPECT_EQ(resumed->state(), whole->state());
}

TEST_P(LearnerOf, ContinuesBitForBitInTheMiddleOfEpisodes) {
  auto script = [] {
    return collect::ScriptedVectorEnv(
        {{{7, false}, {25, true}}, {{12, true}, {3, true}, {9, false}}}, AutoresetMode::kNextStep,
        takes_boxes_alone());
  };
  AlgorithmConfig short_rollouts = config();
  learner_config(short_rollouts).num_steps = 5;
  auto envs = script();
  const auto whole = learner(envs, short_rollouts);
  whole->begin(envs);
  iterate(*whole, 3);
  const LearnerState saved = whole->state();
  const int taken = envs.calls();
  EXPECT_GE(taken, 15);
  iterate(*whole, 3);

  auto other_envs = script();
  vector::Batch current = other_envs.reset(0);
  for (int k = 0; k < taken; ++k) current = other_envs.step();
  const auto resumed = learner(other_envs, short_rollouts, 99);
  resumed->load_state(saved);
  resumed->resume(other_envs, current);
  iterate(*resumed, 3);
  EXPECT_EQ(resumed->state(), whole->state());
}

TEST_P(LearnerOf, EveryOptimiserContinuesBitForBit) {
  for (const auto optimizer :
       {OptimizerKind::kAdam, OptimizerKind::kRmsProp, OptimizerKind::kRmsPropTf}) {
    AlgorithmConfig with = config();
    learner_config(with).optimizer = optimizer;
    const auto envs = make(task(), 4);
    const auto whole = learner(*envs, with);
    whole->begin(*envs);
    iterate(*whole, 2);
    const auto resumed = learner(*envs, with, 99);
    resumed->load_state(whole->state());
    whole->begin(*envs);
    iterate(*whole, 2);
    resumed->begin(*envs);
    iterate(*resumed, 2);
    EXPECT_EQ(resumed->state(), whole->state());
  }
}

TEST_P(LearnerOf, StateOfAnotherLearnerIsRefusedAndChangesNothing) {
  const auto envs = make(task(), 4);
  const auto subject = learner(*envs);
  const LearnerState before = subject->state();
  AlgorithmConfig wider = config();
  learner_config(wider).policy_hidden = {32, 32};
  EXPECT_THROW(subject->load_state(learner(*envs, wider)->state()), InvalidArgument);
  AlgorithmConfig other = config();
  auto& optimizer = learner_config(other).optimizer;
  optimizer = optimizer == OptimizerKind::kAdam ? OptimizerKind::kRmsProp : OptimizerKind::kAdam;
  EXPECT_THROW(subject->load_state(learner(*envs, other)->state()), InvalidArgument);
  LearnerState missing = learner(*envs, 5)->state();
  missing.normalizer.clear();
  EXPECT_THROW(subject->load_state(missing), InvalidArgument);
  missing = learner(*envs, 5)->state();
  missing.counters.erase("steps");
  EXPECT_THROW(subject->load_state(missing), InvalidArgument);
  EXPECT_THROW(subject->load_state(learner(*make(task(), 2))->state()), InvalidArgument);
  EXPECT_EQ(subject->state(), before);
}

TEST_P(LearnerOf, ThePolicyAloneActsAsTheLearnerItCameFrom) {
  const auto envs = make(task(), 4);
  const auto trained = learner(*envs);
  trained->begin(*envs);
  iterate(*trained, 3);
  for (const LearnerState& state : {trained->state(), trained->policy_state()}) {
    const auto loaded = learner(*make(task(), 7), 8);
    loaded->load_policy(state);
    EXPECT_EQ(mean_return(*loaded), mean_return(*trained));
  }
}

TEST_P(LearnerOf, ActingChangesNoState) {
  const auto envs = make(task(), 4);
  const auto subject = learner(*envs);
  const LearnerState before = subject->state();
  mean_return(*subject);
  EXPECT_EQ(subject->state(), before);
}

TEST_P(LearnerOf, IteratingWithoutEnvironmentsThrows) {
  EXPECT_THROW(learner(*make(task(), 2))->iterate(), InvalidState);
}

TEST_P(LearnerOf, OtherEnvironmentsThanItsOwnAreRefused) {
  const auto subject = learner(*make(task(), 2));
  EXPECT_THROW(subject->begin(*make(task(), 3)), InvalidArgument);
  EXPECT_THROW(subject->begin(*make(takes_boxes_alone() ? kCartPole : kPendulum, 2)),
               InvalidArgument);
}

TEST_P(LearnerOf, AnInvalidConfigurationIsRefused) {
  AlgorithmConfig wrong = config();
  learner_config(wrong).gamma = 2;
  EXPECT_THROW(learner(*make(task(), 2), wrong), InvalidArgument);
}

/// All algorithms, and those that overlap where they are told.
std::vector<std::string> subjects() {
  std::vector<std::string> names = algorithm_names();
  for (const std::string& name : algorithm_names()) {
    const auto options = config_names(name);
    if (std::ranges::find(options, "overlap") != options.end())
      names.push_back(name + std::string(kOverlaps));
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LearnerOf, testing::ValuesIn(subjects()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace shoal::learn
