// What every backend does alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "shoal/os/testing/message_of.h"
#include "shoal/vector/testing/backends.h"
#include "shoal/vector/testing/toy_stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector::testing {
namespace {

using os::testing::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kAct = 1;

class VectorEnvConformance : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<VectorEnv> toys(int num_envs, int num_workers,
                                  AutoresetMode mode = AutoresetMode::kNextStep) {
    Options options;
    options.autoreset_mode = mode;
    return make_toys(GetParam(), num_envs, num_workers, options);
  }
  static double state(const Batch& batch, int row, int element) {
    return batch.obs[0].as<double>()[static_cast<std::size_t>(row * 3 + element)];
  }
  static std::int64_t tick(const Batch& batch, int row) {
    return batch.obs[1].as<std::int64_t>()[static_cast<std::size_t>(row)];
  }
};

TEST_P(VectorEnvConformance, TellsItsShape) {
  auto envs = toys(5, 2);
  EXPECT_EQ(envs->num_envs(), 5);
  EXPECT_EQ(envs->num_workers(), 2);
  EXPECT_EQ(envs->single_observation_space(), ToyStepper(1).hello().observation_space);
  EXPECT_EQ(envs->single_action_space(), ToyStepper(1).hello().action_space);
  EXPECT_EQ(envs->autoreset_mode(), AutoresetMode::kNextStep);
  ASSERT_EQ(envs->actions().size(), 1U);
  EXPECT_EQ(envs->actions()[0].rows, 5);
}

TEST_P(VectorEnvConformance, SameSeedGivesTheSameObservations) {
  auto envs = toys(4, 2);
  const Recorded first = record(envs->reset(std::uint64_t{7}));
  const Recorded other = record(envs->reset(std::uint64_t{8}));
  const Recorded again = record(envs->reset(std::uint64_t{7}));
  EXPECT_EQ(first, again);
  EXPECT_NE(first.obs, other.obs);
}

TEST_P(VectorEnvConformance, EnvironmentISeededWithSeedPlusI) {
  auto envs = toys(3, 3);
  const Batch batch = envs->reset(std::uint64_t{10});
  const double second = state(batch, 1, 0);
  const std::vector<std::optional<std::uint64_t>> seeds{11, std::nullopt, std::nullopt};
  EXPECT_EQ(state(envs->reset(seeds), 0, 0), second);
}

TEST_P(VectorEnvConformance, MaskedResetLeavesTheOtherRows) {
  auto envs = toys(4, 2);
  envs->reset(std::uint64_t{1});
  set_actions(*envs, {kAct, kAct, kAct, kAct});
  const Recorded before = record(envs->step());
  const std::vector<std::uint8_t> mask{0, 1, 0, 0};
  const Batch batch = envs->reset({}, mask);
  const Recorded after = record(batch);
  EXPECT_EQ(tick(batch, 1), 0);
  EXPECT_EQ(after.reward[1], 0);
  for (const int row : {0, 2, 3}) {
    EXPECT_EQ(tick(batch, row), 1);
    EXPECT_EQ(after.reward[static_cast<std::size_t>(row)],
              before.reward[static_cast<std::size_t>(row)]);
  }
}

TEST_P(VectorEnvConformance, NextStepModeResetsInTheStepAfterTheEnd) {
  auto envs = toys(3, 2);
  envs->reset(std::uint64_t{3});
  std::vector<bool> over(3, false);
  int resets = 0;
  for (int t = 0; t < 40; ++t) {
    set_actions(*envs, {kAct, kAct, kAct});
    const Batch batch = envs->step();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(batch.reset[i] != 0, over[i]);
      EXPECT_EQ(batch.has_final[i], 0);
      if (over[i]) {
        ++resets;
        EXPECT_EQ(batch.reward[i], 0);
        EXPECT_EQ(batch.terminated[i] + batch.truncated[i], 0);
        EXPECT_EQ(tick(batch, static_cast<int>(i)), 0);
      }
      over[i] = batch.terminated[i] != 0 || batch.truncated[i] != 0;
    }
  }
  EXPECT_GT(resets, 10);
}

TEST_P(VectorEnvConformance, ResetCancelsAPendingAutoreset) {
  auto envs = toys(1, 1);
  Batch batch = envs->reset(std::uint64_t{3});
  do {
    set_actions(*envs, {kAct});
    batch = envs->step();
  } while (batch.terminated[0] + batch.truncated[0] == 0);
  envs->reset(std::uint64_t{4});
  set_actions(*envs, {kAct});
  batch = envs->step();
  EXPECT_EQ(batch.reset[0], 0);
  EXPECT_EQ(tick(batch, 0), 1);
}

TEST_P(VectorEnvConformance, SameStepModeKeepsTheFinalObservation) {
  auto envs = toys(3, 2, AutoresetMode::kSameStep);
  envs->reset(std::uint64_t{3});
  std::vector<double> length(3);
  int finals = 0;
  for (int t = 0; t < 40; ++t) {
    set_actions(*envs, {kAct, kAct, kAct});
    const Batch batch = envs->step();
    for (std::size_t i = 0; i < 3; ++i) {
      const bool over = batch.terminated[i] != 0 || batch.truncated[i] != 0;
      EXPECT_EQ(batch.has_final[i] != 0, over);
      EXPECT_EQ(batch.reset[i] != 0, over);
      if (over) {
        ++finals;
        EXPECT_EQ(tick(batch, static_cast<int>(i)), 0);
        const auto final_tick = batch.final_obs[1].as<std::int64_t>()[i];
        EXPECT_EQ(static_cast<double>(final_tick), batch.final_obs[0].as<double>()[i * 3 + 2]);
        EXPECT_NE(batch.reward[i], 0);
      }
    }
  }
  EXPECT_GT(finals, 10);
}

TEST_P(VectorEnvConformance, DisabledModeResetsNothing) {
  auto envs = toys(2, 2, AutoresetMode::kDisabled);
  envs->reset(std::uint64_t{3});
  for (int t = 1; t <= 20; ++t) {
    set_actions(*envs, {kAct, kAct});
    const Batch batch = envs->step();
    EXPECT_EQ(tick(batch, 0), t);
    EXPECT_THAT(batch.reset, Each(0));
  }
}

TEST_P(VectorEnvConformance, StepBeforeResetIsRefused) {
  auto envs = toys(3, 2);
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }),
              HasSubstr("environment 0 has not been reset"));
  const std::vector<std::uint8_t> mask{1, 0, 1};
  envs->reset({}, mask);
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }),
              HasSubstr("environment 1 has not been reset"));
  const std::vector<std::uint8_t> rest{0, 1, 0};
  envs->reset({}, rest);
  EXPECT_NO_THROW(envs->step());
}

TEST_P(VectorEnvConformance, ASecondCallIsRefusedWhileOneIsUnderWay) {
  auto envs = toys(2, 2);
  envs->reset(std::uint64_t{0});
  envs->step_async();
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }),
              HasSubstr("a step is still under way"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->reset_async({}); }),
              HasSubstr("a step is still under way"));
  EXPECT_NO_THROW(envs->wait());
  EXPECT_THAT(message_of<InvalidState>([&] { envs->wait(); }), HasSubstr("nothing is under way"));
}

TEST_P(VectorEnvConformance, WrongLengthsAreRefusedAndChangeNothing) {
  auto envs = toys(3, 2);
  const std::vector<std::optional<std::uint64_t>> two_seeds{1, 2};
  EXPECT_THROW(envs->reset_async(two_seeds), InvalidArgument);
  const std::vector<std::uint8_t> none{0, 0, 0};
  EXPECT_THROW(envs->reset_async({}, none), InvalidArgument);
  EXPECT_NO_THROW(envs->reset(std::uint64_t{0}));
}

TEST_P(VectorEnvConformance, CloseIsIdempotentAndFinal) {
  auto envs = toys(2, 2);
  envs->reset(std::uint64_t{0});
  envs->close();
  envs->close();
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }), HasSubstr("closed"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->reset_async({}); }), HasSubstr("closed"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->wait(); }), HasSubstr("closed"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->require_open("recv"); }),
              HasSubstr("recv: these environments are closed"));
}

TEST_P(VectorEnvConformance, CanBeClosedWhileACallIsUnderWay) {
  auto envs = toys(2, 2);
  envs->reset_async({});
  EXPECT_NO_THROW(envs->require_open("recv"));
  envs->close();
}

TEST_P(VectorEnvConformance, CanBeDestroyedUnused) { toys(2, 2); }

TEST_P(VectorEnvConformance, AnEnvironmentsFailureIsThrownAndFinal) {
  auto envs = toys(4, 2);
  envs->reset(std::uint64_t{0});
  set_actions(*envs, {kAct, kAct, kAct, ToyAction::kThrow});
  envs->step_async();
  try {
    envs->wait();
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("toy 3 refuses"));
  }
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }), HasSubstr("failed"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->require_open("recv"); }),
              AllOf(HasSubstr("recv: these environments are closed"), HasSubstr("failed")));
  envs->close();
}

TEST_P(VectorEnvConformance, CountsWhatItDid) {
  auto envs = toys(5, 2);
  envs->reset(std::uint64_t{0});
  for (int t = 0; t < 3; ++t) {
    set_actions(*envs, std::vector<std::int64_t>(5, kAct));
    envs->step();
  }
  const Stats stats = envs->stats();
  EXPECT_EQ(stats.steps, 3U);
  EXPECT_EQ(stats.resets, 1U);
  ASSERT_EQ(stats.workers.size(), 2U);
  EXPECT_EQ(stats.workers[0].num_envs, 3);
  EXPECT_EQ(stats.workers[1].first_env, 3);
  for (const WorkerStats& worker : stats.workers) {
    EXPECT_EQ(worker.steps, 3U);
    EXPECT_EQ(worker.resets, 1U);
    // Of threads, one that came too late has done nothing.
    if (GetParam() != Kind::kThread) {
      EXPECT_GT(worker.busy_ns, 0U);
    }
  }
  EXPECT_GT(stats.workers[0].busy_ns + stats.workers[1].busy_ns, 0U);
}

INSTANTIATE_TEST_SUITE_P(Backends, VectorEnvConformance,
                         ::testing::Values(Kind::kSerial, Kind::kThread, Kind::kProcessAsThreads,
                                           Kind::kFork, Kind::kForkserver, Kind::kSpawn),
                         [](const auto& info) { return name(info.param); });

// --- the same bits for every backend and number of workers
// -------------------------------------------------------------

struct Trajectory {
  std::string id;  // "" for toys
  AutoresetMode mode;
  int steps;
};

void PrintTo(const Trajectory& trajectory, std::ostream* out) { *out << trajectory.id; }

void write_random_actions(VectorEnv& envs, std::mt19937_64& random) {
  const shm::TensorView& actions = envs.actions()[0];
  if (actions.row.dtype == shm::DType::kF32) {
    for (float& action : actions.as<float>()) {
      action = static_cast<float>(random() % 4001) / 1000.0F - 2.0F;
    }
  } else {
    for (std::int64_t& action : actions.as<std::int64_t>())
      action = static_cast<std::int64_t>(random() % 2);
  }
}

std::vector<Recorded> run(VectorEnv& envs, int steps) {
  std::vector<Recorded> batches;
  std::mt19937_64 random(5);
  batches.push_back(record(envs.reset(std::uint64_t{42})));
  for (int t = 0; t < steps; ++t) {
    write_random_actions(envs, random);
    batches.push_back(record(envs.step()));
    if (t == steps / 2) {
      std::vector<std::uint8_t> mask(static_cast<std::size_t>(envs.num_envs()));
      mask[1] = mask[5] = 1;
      batches.push_back(record(envs.reset({}, mask)));
    }
  }
  return batches;
}

class SameBits : public ::testing::TestWithParam<std::tuple<Kind, Trajectory>> {};

TEST_P(SameBits, AsSerialForAnyNumberOfWorkers) {
  constexpr int kNumEnvs = 7;
  const auto& [kind, trajectory] = GetParam();
  Options options;
  options.autoreset_mode = trajectory.mode;
  const auto make = [&](Kind of, int num_workers) {
    return trajectory.id.empty() ? make_toys(of, kNumEnvs, num_workers, options)
                                 : make_native(of, trajectory.id, kNumEnvs, num_workers, options);
  };
  const std::vector<Recorded> expected = run(*make(Kind::kSerial, 1), trajectory.steps);
  for (const int num_workers : {1, 2, 4}) {
    const std::vector<Recorded> got = run(*make(kind, num_workers), trajectory.steps);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t t = 0; t < got.size(); ++t) {
      ASSERT_EQ(got[t], expected[t]) << "batch " << t << " with " << num_workers << " workers";
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<SameBits::ParamType>& info) {
  const Trajectory& trajectory = std::get<1>(info.param);
  std::string text = name(std::get<0>(info.param)) + "_";
  for (const char c : trajectory.id.empty() ? std::string("Toy") : trajectory.id) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) text += c;
  }
  return text + "_" + std::string(vector::name(trajectory.mode));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, SameBits,
    ::testing::Combine(
        ::testing::Values(Kind::kSerial, Kind::kThread, Kind::kProcessAsThreads, Kind::kFork,
                          Kind::kForkserver),
        ::testing::Values(Trajectory{"", AutoresetMode::kNextStep, 200},
                          Trajectory{"", AutoresetMode::kSameStep, 200},
                          Trajectory{"", AutoresetMode::kDisabled, 50},
                          Trajectory{"shoal/CartPole-v1", AutoresetMode::kNextStep, 300},
                          Trajectory{"shoal/CartPole-v1", AutoresetMode::kSameStep, 300},
                          Trajectory{"shoal/Pendulum-v1", AutoresetMode::kNextStep, 450})),
    name_of);

}  // namespace
}  // namespace shoal::vector::testing
