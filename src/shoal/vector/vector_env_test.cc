// VectorEnv::create: native environments on every backend.
#include "shoal/vector/vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/testing/message_of.h"
#include "shoal/process/error_report.h"
#include "shoal/vector/local/serial_vector_env.h"
#include "shoal/vector/local/thread_vector_env.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/testing/backends.h"

namespace shoal::vector {
namespace {

using os::testing::message_of;
using ::testing::HasSubstr;

class VectorEnvCreate : public ::testing::Test {
 protected:
  VectorEnvCreate() { ::setenv("SHOAL_WORKER", SHOAL_WORKER_PROGRAM, 1); }
};

Options options_of(Backend backend, int num_envs, int num_workers) {
  Options options;
  options.backend = backend;
  options.num_envs = num_envs;
  options.num_workers = num_workers;
  return options;
}

TEST_F(VectorEnvCreate, ChoosesTheBackend) {
  const auto create = [](Backend backend, int num_workers) {
    return VectorEnv::create("shoal/CartPole-v1", options_of(backend, 4, num_workers));
  };
  EXPECT_NE(dynamic_cast<SerialVectorEnv*>(create(Backend::kAuto, 1).get()), nullptr);
  EXPECT_NE(dynamic_cast<ThreadVectorEnv*>(create(Backend::kAuto, 2).get()), nullptr);
  EXPECT_NE(dynamic_cast<SerialVectorEnv*>(create(Backend::kSerial, 2).get()), nullptr);
  EXPECT_NE(dynamic_cast<ThreadVectorEnv*>(create(Backend::kThread, 2).get()), nullptr);
  EXPECT_NE(dynamic_cast<ProcessVectorEnv*>(create(Backend::kProcess, 2).get()), nullptr);
}

TEST_F(VectorEnvCreate, UsesOneWorkerForEachCpuUnlessThereAreFewerEnvironments) {
  const auto workers = [](int num_envs) {
    return VectorEnv::create("shoal/CartPole-v1", options_of(Backend::kThread, num_envs, 0))
        ->num_workers();
  };
  EXPECT_EQ(workers(1), 1);
  EXPECT_EQ(workers(1000), std::min(1000, os::allowed_cpus()));
}

TEST_F(VectorEnvCreate, GivesTheSameBitsInTheWorkerProgram) {
  const auto run = [](Backend backend, int num_workers) {
    auto envs =
        VectorEnv::create("shoal/MountainCarContinuous-v0", options_of(backend, 5, num_workers));
    std::vector<testing::Recorded> batches;
    batches.push_back(testing::record(envs->reset(std::uint64_t{9})));
    for (int t = 0; t < 50; ++t) {
      for (float& action : envs->actions()[0].as<float>()) action = t % 3 == 0 ? -1.0F : 0.75F;
      batches.push_back(testing::record(envs->step()));
    }
    return batches;
  };
  const auto expected = run(Backend::kSerial, 1);
  EXPECT_EQ(run(Backend::kProcess, 1), expected);
  EXPECT_EQ(run(Backend::kProcess, 3), expected);
  EXPECT_EQ(run(Backend::kThread, 2), expected);
}

TEST_F(VectorEnvCreate, NamesWhatIsWrong) {
  EXPECT_THAT(
      message_of([] { VectorEnv::create("shoal/CartPole-v1", options_of(Backend::kAuto, 0, 0)); }),
      HasSubstr("num_envs is 0"));
  EXPECT_THAT(
      message_of([] { VectorEnv::create("shoal/CartPole-v1", options_of(Backend::kAuto, 2, 3)); }),
      HasSubstr("num_workers is 3"));
  for (const Backend backend : {Backend::kSerial, Backend::kThread, Backend::kProcess}) {
    EXPECT_THAT(
        message_of([&] { VectorEnv::create("shoal/CartPol-v1", options_of(backend, 2, 1)); }),
        HasSubstr("shoal/CartPole-v1"));
  }
}

TEST_F(VectorEnvCreate, ReportsBadArgumentsOfTheEnvironmentFromEveryBackend) {
  for (const Backend backend : {Backend::kSerial, Backend::kThread, Backend::kProcess}) {
    Options options = options_of(backend, 2, 2);
    options.env_args = R"({"gravitas": 9.8})";
    EXPECT_THAT(message_of([&] { VectorEnv::create("shoal/Pendulum-v1", options); }),
                HasSubstr("gravitas"));
  }
}

TEST_F(VectorEnvCreate, BadActionsAreReportedFromEveryBackend) {
  for (const Backend backend : {Backend::kSerial, Backend::kThread, Backend::kProcess}) {
    auto envs = VectorEnv::create("shoal/CartPole-v1", options_of(backend, 4, 2));
    envs->reset(std::uint64_t{0});
    envs->actions()[0].as<std::int64_t>()[3] = 7;
    EXPECT_THAT(message_of([&] { envs->step(); }), HasSubstr("7"));
  }
}

}  // namespace
}  // namespace shoal::vector
