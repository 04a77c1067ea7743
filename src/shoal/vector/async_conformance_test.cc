// What send() and recv() do alike on every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "shoal/os/testing/message_of.h"
#include "shoal/vector/testing/backends.h"
#include "shoal/vector/testing/toy_stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;
using os::testing::message_of;

/// What one environment gave, without its place in a batch.
struct Outcome {
  std::vector<std::byte> obs, final_obs;
  double reward;
  int flags;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(const Batch& batch, std::size_t slot) {
  Outcome outcome{.obs = {}, .final_obs = {}, .reward = batch.reward[slot], .flags = 0};
  const auto append = [slot](std::vector<std::byte>& to, const shm::TensorView& leaf) {
    const std::byte* at = leaf.row_data(static_cast<std::int64_t>(slot));
    to.insert(to.end(), at, at + leaf.row_bytes());
  };
  for (const shm::TensorView& leaf : batch.obs) append(outcome.obs, leaf);
  if (batch.has_final[slot] != 0) {
    for (const shm::TensorView& leaf : batch.final_obs) append(outcome.final_obs, leaf);
  }
  outcome.flags = batch.terminated[slot] | batch.truncated[slot] << 1 | batch.reset[slot] << 2 |
                  batch.has_final[slot] << 3 | batch.fault[slot] << 4;
  return outcome;
}

/// The action of an environment's step: a function of both, so that the order of arrival is not in
/// it.
std::int64_t action_of(std::int64_t env, std::size_t step) {
  return static_cast<std::int64_t>((static_cast<std::size_t>(env) * 31 + step * 7) % 800);
}

void send(VectorEnv& envs, const Ids& ids, std::int64_t action) {
  for (const std::int64_t id : ids) {
    envs.actions()[0].as<std::int64_t>()[static_cast<std::size_t>(id)] = action;
  }
  envs.send(ids);
}

Ids ids_of(const Arrivals& arrivals) { return {arrivals.env_ids.begin(), arrivals.env_ids.end()}; }

std::vector<std::optional<std::uint64_t>> seeds_from(std::uint64_t seed, int n) {
  std::vector<std::optional<std::uint64_t>> seeds;
  for (int i = 0; i < n; ++i) seeds.emplace_back(seed + static_cast<std::uint64_t>(i));
  return seeds;
}

using Trajectories = std::vector<std::vector<Outcome>>;

/// `steps` steps of every environment, all together.
Trajectories play_sync(VectorEnv& envs, std::size_t steps) {
  const auto n = static_cast<std::size_t>(envs.num_envs());
  Trajectories played(n);
  Batch batch = envs.reset(std::uint64_t{5});
  for (std::size_t step = 0;; ++step) {
    for (std::size_t i = 0; i < n; ++i) played[i].push_back(outcome_of(batch, i));
    if (step == steps) return played;
    for (std::size_t i = 0; i < n; ++i) {
      envs.actions()[0].as<std::int64_t>()[i] = action_of(static_cast<std::int64_t>(i), step);
    }
    batch = envs.step();
  }
}

/// At least `steps` steps of every environment, in batches; `order` sees the ids of each.
Trajectories play_async(VectorEnv& envs, std::size_t steps,
                        const std::function<void(const Ids&)>& order = {}) {
  const int n = envs.num_envs();
  Trajectories played(static_cast<std::size_t>(n));
  envs.send_reset(seeds_from(5, n));
  const auto behind = [&] {
    return std::any_of(played.begin(), played.end(),
                       [&](const auto& one) { return one.size() <= steps; });
  };
  while (behind()) {
    const Arrivals arrivals = envs.recv(30s);
    const Ids ids = ids_of(arrivals);
    if (order) order(ids);
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      auto& one = played[static_cast<std::size_t>(ids[slot])];
      one.push_back(outcome_of(arrivals.batch, slot));
      envs.actions()[0].as<std::int64_t>()[static_cast<std::size_t>(ids[slot])] =
          action_of(ids[slot], one.size() - 1);
    }
    envs.send(ids);
  }
  for (auto& one : played) one.resize(steps + 1, one[0]);
  return played;
}

class AsyncConformance : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<VectorEnv> toys(int num_envs, int num_workers, Options options = {}) {
    return make_toys(GetParam(), num_envs, num_workers, options);
  }
  std::unique_ptr<VectorEnv> batches(int num_envs, int num_workers, int batch_size,
                                     AutoresetMode mode = AutoresetMode::kNextStep) {
    return toys(num_envs, num_workers, {.autoreset_mode = mode, .batch_size = batch_size});
  }
};

TEST_P(AsyncConformance, ABatchIsEnvironmentsThatWereInFlight) {
  auto envs = batches(6, 2, 2);
  EXPECT_EQ(envs->batch_size(), 2);
  envs->send_reset(seeds_from(0, 6));
  EXPECT_EQ(envs->in_flight(), 6);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 3; ++i) {
    const Arrivals arrivals = envs->recv(30s);
    EXPECT_EQ(arrivals.batch.reward.size(), 2U);
    EXPECT_EQ(arrivals.batch.obs[0].rows, 2);
    seen.insert(arrivals.env_ids.begin(), arrivals.env_ids.end());
  }
  EXPECT_EQ(seen.size(), 6U);
  EXPECT_EQ(envs->in_flight(), 0);
}

TEST_P(AsyncConformance, EveryEnvironmentHasTheTrajectoryOfSynchronousSteps) {
  for (const AutoresetMode mode :
       {AutoresetMode::kNextStep, AutoresetMode::kSameStep, AutoresetMode::kDisabled}) {
    const Trajectories expected =
        play_sync(*make_toys(Kind::kSerial, 7, 1, {.autoreset_mode = mode}), 60);
    for (const int workers : {1, 2, 4}) {
      for (const int batch_size : {1, 3, 7}) {
        EXPECT_EQ(play_async(*batches(7, workers, batch_size, mode), 60), expected)
            << workers << " workers, batches of " << batch_size;
      }
    }
  }
}

TEST_P(AsyncConformance, CohortsComeInTheirOrderWithTheSameResults) {
  const Trajectories expected = play_sync(*make_toys(Kind::kSerial, 6, 1), 60);
  for (const int cohorts : {1, 2, 3}) {
    for (const int workers : {1, 2, 4}) {
      auto envs = toys(6, workers, {.cohorts = cohorts});
      const int size = 6 / cohorts;
      EXPECT_EQ(envs->batch_size(), size);
      int turn = 0;
      const auto in_order = [&](const Ids& ids) {
        Ids wanted(static_cast<std::size_t>(size));
        std::iota(wanted.begin(), wanted.end(), (turn++ % cohorts) * size);
        EXPECT_EQ(ids, wanted);
      };
      EXPECT_EQ(play_async(*envs, 60, in_order), expected);
    }
  }
}

TEST_P(AsyncConformance, SynchronousCallsGiveTheSameAsEverywhere) {
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    const Trajectories expected =
        play_sync(*make_toys(Kind::kSerial, 5, 1, {.autoreset_mode = mode}), 40);
    EXPECT_EQ(play_sync(*batches(5, 2, 2, mode), 40), expected);
  }
}

TEST_P(AsyncConformance, SynchronousAndAsynchronousCallsMayAlternateWhileNothingIsInFlight) {
  auto envs = batches(4, 2, 4);
  envs->reset(std::uint64_t{1});
  send(*envs, {3, 1, 0, 2}, 1);
  EXPECT_THAT(message_of<AlreadyInFlight>([&] { envs->step_async(); }), HasSubstr("discard"));
  EXPECT_THAT(message_of<AlreadyInFlight>([&] { envs->reset(std::uint64_t{1}); }),
              HasSubstr("recv()"));
  envs->recv(30s);
  set_actions(*envs, {1, 1, 1, 1});
  EXPECT_EQ(envs->step().reward.size(), 4U);
  set_actions(*envs, {1, 1, 1, 1});
  envs->step_async();
  EXPECT_THAT(message_of<InvalidState>([&] { envs->send(Ids{0}); }),
              HasSubstr("step is still under way"));
  envs->wait();
}

TEST_P(AsyncConformance, AllThatWasSentComesBackAlsoInParts) {
  auto envs = batches(5, 2, 2);
  envs->reset(std::uint64_t{1});
  send(*envs, {4}, 1);
  EXPECT_THAT(message_of<NothingInFlight>([&] { envs->recv(); }),
              HasSubstr("a batch is 2 environments, 1 is in flight; send() at least 1 more"));
  send(*envs, {0, 2}, 1);
  EXPECT_EQ(envs->in_flight(), 3);
  envs->recv(30s);
  EXPECT_EQ(envs->in_flight(), 1);
}

TEST_P(AsyncConformance, WrongIdsAreRefusedAndNothingIsSent) {
  auto envs = batches(4, 2, 2);
  EXPECT_THAT(message_of<NotReset>([&] { envs->send(Ids{0, 3}); }),
              HasSubstr("environments 0 and 3 have not been reset"));
  envs->reset(std::uint64_t{1});
  EXPECT_THAT(message_of<InvalidArgument>([&] { envs->send(Ids{1, 4, -1}); }),
              HasSubstr("there is no environments 4 and -1; their ids are 0 to 3"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { envs->send(Ids{1, 2, 1}); }),
              HasSubstr("environment 1 came twice"));
  EXPECT_EQ(envs->in_flight(), 0);
  send(*envs, {1, 2}, 1);
  EXPECT_THAT(message_of<AlreadyInFlight>([&] { envs->send(Ids{0, 2, 3}); }),
              HasSubstr("environment 2 is in flight already"));
  EXPECT_EQ(envs->in_flight(), 2);
  std::vector<std::uint8_t> mask{0, 1, 0, 1};
  EXPECT_THAT(message_of<AlreadyInFlight>([&] { envs->send_reset({}, mask); }),
              HasSubstr("environment 1 is in flight"));
  envs->recv(30s);
}

TEST_P(AsyncConformance, MaxInFlightBoundsWhatIsOut) {
  auto envs = toys(6, 2, {.batch_size = 2, .max_in_flight = 3});
  envs->reset(std::uint64_t{1});
  send(*envs, {0, 1}, 1);
  EXPECT_THAT(message_of<AlreadyInFlight>([&] { send(*envs, {2, 3}, 1); }),
              HasSubstr("4 environments would be in flight, max_in_flight is 3"));
  send(*envs, {2}, 1);
  envs->recv(30s);
  send(*envs, {4, 5}, 1);
}

TEST_P(AsyncConformance, OptionsThatDoNotFitAreRefused) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { batches(4, 2, 5); }),
              HasSubstr("batch_size is 5; it must be between 1 and num_envs=4"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { toys(4, 2, {.cohorts = 3}); }),
              HasSubstr("cohorts is 3; it must divide num_envs=4"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { toys(4, 2, {.batch_size = 4, .cohorts = 2}); }),
              HasSubstr("leave one of them out"));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { toys(4, 2, {.batch_size = 2, .max_in_flight = 1}); }),
      HasSubstr("max_in_flight is 1; it must be between batch_size=2"));
}

TEST_P(AsyncConformance, AMaskedResetGoesBesideSteps) {
  auto envs = batches(4, 2, 1);
  envs->reset(std::uint64_t{1});
  send(*envs, {0}, 1);
  const std::vector<std::uint8_t> mask{0, 0, 1, 0};
  envs->send_reset(seeds_from(7, 4), mask);
  std::set<std::int64_t> ids;
  for (int i = 0; i < 2; ++i) {
    const Arrivals arrivals = envs->recv(30s);
    ids.insert(arrivals.env_ids[0]);
    EXPECT_EQ(arrivals.batch.obs[1].as<std::int64_t>()[0], arrivals.env_ids[0] == 0 ? 1 : 0);
  }
  EXPECT_EQ(ids, (std::set<std::int64_t>{0, 2}));
}

TEST_P(AsyncConformance, DiscardThrowsAwayWhatIsInFlight) {
  for (const int cohorts : {0, 2}) {
    auto envs = toys(6, 2, cohorts > 0 ? Options{.cohorts = cohorts} : Options{.batch_size = 4});
    const Trajectories first = play_async(*envs, 10);
    envs->discard(30s);
    EXPECT_EQ(envs->in_flight(), 0);
    EXPECT_EQ(play_async(*envs, 10), first);
    envs->discard(30s);
    envs->discard();
    EXPECT_EQ(envs->reset(std::uint64_t{5}).reward.size(), 6U);
  }
}

TEST_P(AsyncConformance, ALeaseIsNeverOverwritten) {
  auto envs = batches(4, 2, 2);
  envs->send_reset(seeds_from(1, 4));
  struct Kept {
    Arrivals arrivals;
    Recorded copy;
    Ids ids;
  };
  std::vector<Kept> kept;
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    Arrivals arrivals = envs->recv(30s);
    ASSERT_NE(arrivals.lease, nullptr);
    const Ids ids = ids_of(arrivals);
    kept.push_back({arrivals, record(arrivals.batch), ids});
    send(*envs, ids, i);
    if (kept.size() > 12) kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(random() % 12));
  }
  envs->close();
  envs.reset();
  for (const Kept& one : kept) {
    EXPECT_EQ(record(one.arrivals.batch), one.copy);
    EXPECT_EQ(ids_of(one.arrivals), one.ids);
  }
}

TEST_P(AsyncConformance, InfosComeWithTheirEnvironment) {
  auto envs = batches(4, 2, 4);
  envs->reset(std::uint64_t{1});
  envs->actions()[0].as<std::int64_t>()[0] = 1;
  envs->actions()[0].as<std::int64_t>()[1] = ToyAction::kSmallInfo;
  envs->actions()[0].as<std::int64_t>()[2] = ToyAction::kLargeInfo;
  envs->actions()[0].as<std::int64_t>()[3] = ToyAction::kLargeInfo;
  envs->send(Ids{0, 1, 2, 3});
  const Arrivals arrivals = envs->recv(30s);
  ASSERT_EQ(arrivals.infos.size(), 3U);
  for (const Arrivals::Info& info : arrivals.infos) {
    const std::int64_t env = arrivals.env_ids[static_cast<std::size_t>(info.slot)];
    if (env == 1) {
      EXPECT_EQ(text_of(info.bytes), "toy 1;");
    } else {
      ASSERT_EQ(info.bytes.size(), 300'000U);
      EXPECT_EQ(info.bytes[7], static_cast<std::byte>(env));
    }
  }
}

TEST_P(AsyncConformance, AFailureIsRaisedAndClosesTheEnvironments) {
  auto envs = batches(4, 2, 2);
  envs->reset(std::uint64_t{1});
  send(*envs, {3}, ToyAction::kThrow);
  send(*envs, {1}, 1);
  EXPECT_THAT(message_of<std::exception>([&] { envs->recv(30s); }), HasSubstr("toy 3 refuses"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->recv(); }), HasSubstr("closed"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->send(Ids{0}); }), HasSubstr("closed"));
  envs->close();
  envs->close();
}

TEST_P(AsyncConformance, NothingGoesAfterClose) {
  auto envs = batches(4, 2, 2);
  envs->send_reset({});
  envs->close();
  EXPECT_THAT(message_of<InvalidState>([&] { envs->recv(); }), HasSubstr("closed"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->send(Ids{0}); }), HasSubstr("closed"));
}

INSTANTIATE_TEST_SUITE_P(Backends, AsyncConformance,
                         ::testing::Values(Kind::kSerial, Kind::kThread, Kind::kProcessAsThreads,
                                           Kind::kFork, Kind::kForkserver),
                         [](const auto& info) { return name(info.param); });

// Native environments are obeyed and delivered as runs of neighbours, whatever the order they were
// sent in.
TEST(AsyncRuns, NativeEnvironmentsHaveTheirTrajectoriesInAnyOrder) {
  constexpr int kEnvs = 40;
  const auto make = [](Backend backend, int workers, int batch_size, int cohorts,
                       AutoresetMode mode) {
    return VectorEnv::create("shoal/CartPole-v1", {.num_envs = kEnvs,
                                                   .num_workers = workers,
                                                   .backend = backend,
                                                   .autoreset_mode = mode,
                                                   .batch_size = batch_size,
                                                   .cohorts = cohorts});
  };
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    const auto play = [&](VectorEnv& envs) {
      std::mt19937 random(3);
      Trajectories played(kEnvs);
      std::vector<std::size_t> steps(kEnvs, 0);
      envs.send_reset(seeds_from(5, kEnvs));
      Ids waiting;
      for (int batch = 0; batch < 12'000 / envs.batch_size(); ++batch) {
        const Arrivals arrivals = envs.recv(30s);
        for (std::size_t slot = 0; slot < arrivals.env_ids.size(); ++slot) {
          const std::int64_t id = arrivals.env_ids[slot];
          const auto at = static_cast<std::size_t>(id);
          played[at].push_back(outcome_of(arrivals.batch, slot));
          envs.actions()[0].as<std::int64_t>()[at] =
              (static_cast<std::int64_t>(++steps[at]) / 3 + id) % 2;
          waiting.push_back(id);
        }
        if (envs.in_flight() >= envs.batch_size() && random() % 2 == 0) continue;
        std::shuffle(waiting.begin(), waiting.end(), random);
        envs.send(waiting);
        waiting.clear();
      }
      return played;
    };
    const Trajectories expected = [&] {
      const auto envs = make(Backend::kSerial, 1, 1, 0, mode);
      return play(*envs);
    }();
    for (const int workers : {1, 2, 3}) {
      for (const int batch_size : {1, 7, 20, 40}) {
        const auto envs =
            make(workers == 1 ? Backend::kSerial : Backend::kThread, workers, batch_size, 0, mode);
        const Trajectories played = play(*envs);
        for (std::size_t i = 0; i < kEnvs; ++i) {
          const std::size_t n = std::min(played[i].size(), expected[i].size());
          ASSERT_GT(n, 30U);
          EXPECT_TRUE(std::equal(played[i].begin(), played[i].begin() + static_cast<long>(n),
                                 expected[i].begin()))
              << "environment " << i << ", " << workers << " workers, batches of " << batch_size;
        }
      }
    }
  }
}

/// The backends that step all environments together: a batch is all of them.
class WholeBatches : public ::testing::TestWithParam<Kind> {};

TEST_P(WholeBatches, SendAndRecvStepAllOfThem) {
  const Trajectories expected = play_sync(*make_toys(Kind::kSerial, 5, 1), 30);
  EXPECT_EQ(play_async(*make_toys(GetParam(), 5, 2), 30), expected);
}

TEST_P(WholeBatches, ABatchMayBeSentInParts) {
  auto envs = make_toys(GetParam(), 4, 2);
  EXPECT_EQ(envs->batch_size(), 4);
  envs->reset(std::uint64_t{1});
  send(*envs, {3, 0}, 1);
  EXPECT_EQ(envs->in_flight(), 2);
  EXPECT_THAT(message_of<NothingInFlight>([&] { envs->recv(); }),
              HasSubstr("all 4 environments, of which environments 1 and 2 are not in flight"));
  EXPECT_THAT(message_of<AlreadyInFlight>([&] { envs->send(Ids{3}); }),
              HasSubstr("environment 3 is"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { envs->send(Ids{1, 1}); }), HasSubstr("twice"));
  send(*envs, {1, 2}, 1);
  EXPECT_THAT(ids_of(envs->recv(30s)), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(envs->in_flight(), 0);
  send(*envs, {2}, 1);
  envs->discard();
  EXPECT_EQ(envs->in_flight(), 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, WholeBatches,
                         ::testing::Values(Kind::kSerial, Kind::kThread, Kind::kProcessAsThreads,
                                           Kind::kForkserver),
                         [](const auto& info) { return name(info.param); });

}  // namespace
}  // namespace shoal::vector::testing
