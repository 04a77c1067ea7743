// What native environments learn of their worker, on every backend.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "shoal/vector/testing/backends.h"
#include "shoal/vector/testing/who_am_i.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {
namespace {

using testing::Kind;
using testing::WhoAmI;

constexpr int kEnvs = 5;
constexpr int kWorkers = 2;

double observed(const Batch& batch, int env, int what) {
  return batch.obs[0].as<double>()[static_cast<std::size_t>(env * WhoAmI::kObserved + what)];
}

class IdentityOfNativeEnvs : public ::testing::TestWithParam<Kind> {};

TEST_P(IdentityOfNativeEnvs, IsRightWhileTheyAreBuiltResetAndStepped) {
  const auto shared_state = process::SharedState::create();
  Options options;
  options.shared_state = shared_state;
  const auto envs = testing::make_native(GetParam(), "test/WhoAmI-v0", kEnvs, kWorkers, options);
  // Threads of one process take each other's work: they are one worker.
  const int workers = GetParam() == Kind::kThread ? 1 : envs->num_workers();
  Batch batch = envs->reset(10);
  std::set<double> ports;
  for (const bool stepped : {false, true}) {
    if (stepped) batch = envs->step();
    for (int i = 0; i < kEnvs; ++i) {
      EXPECT_EQ(observed(batch, i, 0), workers == 1 ? 0 : i < 3 ? 0 : 1);
      EXPECT_EQ(observed(batch, i, 1), workers);
      EXPECT_EQ(observed(batch, i, 2), i);
      EXPECT_EQ(observed(batch, i, 3), i);
      EXPECT_EQ(observed(batch, i, 4), 10 + i);
      ports.insert(observed(batch, i, 5));
    }
  }
  EXPECT_EQ(ports.size(), static_cast<std::size_t>(kEnvs));
  EXPECT_EQ(shared_state->counter("built").value(), kEnvs);
  EXPECT_EQ(shared_state->counter("steps").value(), kEnvs);
}

TEST_P(IdentityOfNativeEnvs, VectorEnvsCountApart) {
  Options options, others;
  options.shared_state = process::SharedState::create();
  others.shared_state = process::SharedState::create();
  const auto envs = testing::make_native(GetParam(), "test/WhoAmI-v0", 2, 1, options);
  const auto other = testing::make_native(GetParam(), "test/WhoAmI-v0", 3, 1, others);
  EXPECT_EQ(options.shared_state->counter("built").value(), 2);
  EXPECT_EQ(others.shared_state->counter("built").value(), 3);
}

INSTANTIATE_TEST_SUITE_P(Backends, IdentityOfNativeEnvs,
                         ::testing::Values(Kind::kSerial, Kind::kThread, Kind::kFork,
                                           Kind::kForkserver, Kind::kSpawn),
                         [](const auto& info) { return testing::name(info.param); });

}  // namespace
}  // namespace shoal::vector
