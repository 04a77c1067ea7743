// Workers of a pool that are replaced between episodes, one after the other: every one is over a
// limit of one byte.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

#include "shoal/vector/async/pool_vector_env.h"
#include "shoal/vector/testing/backends.h"
#include "shoal/vector/testing/toy_stepper.h"
#include "shoal/vector/worker_program/native_worker.h"

namespace shoal::vector::testing {
namespace {

using namespace std::chrono_literals;
using Ids = std::vector<std::int64_t>;

Options recycling(int batch_size, int cohorts = 0, AutoresetMode mode = AutoresetMode::kNextStep) {
  return {.autoreset_mode = mode, .memory_limit = 1, .batch_size = batch_size, .cohorts = cohorts};
}

/// One transition of an environment.
struct Row {
  std::vector<std::byte> obs, final_obs;
  double reward;
  int flags;
  bool operator==(const Row&) const = default;
};
constexpr int kReset = 4;
constexpr int kFinal = 8;

/// Its reset was held back.
bool is_held(const Row& row) { return (row.flags & (kFinal | kReset)) == kFinal; }

std::string describe(const Row& row) {
  double state[3];
  std::memcpy(state, row.obs.data(), sizeof state);
  return fmt::format("({}, length {}, reward {}, flags {})", state[0], state[2], row.reward,
                     row.flags);
}

Row row_of(const Batch& batch, std::size_t slot) {
  Row row{.obs = {}, .final_obs = {}, .reward = batch.reward[slot], .flags = 0};
  const auto append = [slot](std::vector<std::byte>& to, const shm::TensorView& leaf) {
    const std::byte* at = leaf.row_data(static_cast<std::int64_t>(slot));
    to.insert(to.end(), at, at + leaf.row_bytes());
    // The number of the episode, which a toy hands nobody.
    if (to.size() == 3 * sizeof(double)) std::fill_n(to.begin() + 8, 8, std::byte{0});
  };
  for (const shm::TensorView& leaf : batch.obs) append(row.obs, leaf);
  if (batch.has_final[slot] != 0) {
    for (const shm::TensorView& leaf : batch.final_obs) append(row.final_obs, leaf);
  }
  row.flags = batch.terminated[slot] | batch.truncated[slot] << 1 |
              (batch.reset[slot] != 0 ? kReset : 0) | (batch.has_final[slot] != 0 ? kFinal : 0);
  return row;
}

/// The transitions of every environment, whatever rows were down; in same-step mode a reset that
/// was held back is part of the step before it.
class Player {
 public:
  explicit Player(VectorEnv& envs) : envs_(envs), rows_(static_cast<std::size_t>(envs.num_envs())) {
    std::vector<std::optional<std::uint64_t>> seeds;
    for (int i = 0; i < envs.num_envs(); ++i) seeds.emplace_back(5 + static_cast<unsigned>(i));
    take(envs.reset(seeds), all());
  }

  /// One step of all, together.
  void step() {
    act(all());
    take(envs_.step(), all());
  }
  void send(const Ids& ids) {
    act(ids);
    envs_.send(ids);
  }
  Ids recv() {
    const Arrivals arrivals = envs_.recv(30s);
    const Ids ids(arrivals.env_ids.begin(), arrivals.env_ids.end());
    take(arrivals.batch, ids);
    return ids;
  }

  Ids all() const {
    Ids ids(rows_.size());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
    return ids;
  }
  int recycles() const {
    int least = 1 << 30;
    for (const WorkerHealth& worker : envs_.health()) {
      least = std::min(least, static_cast<int>(worker.recycles));
    }
    return least;
  }
  const std::vector<std::vector<Row>>& rows() const { return rows_; }
  int down() const { return down_; }
  int faults() const { return faults_; }

  /// Those that the same actions lead to without a limit.
  void expect_the_same_without_a_limit(AutoresetMode mode) const {
    auto alone = make_toys(Kind::kSerial, envs_.num_envs(), 1, {.autoreset_mode = mode});
    Player plain(*alone);
    const auto behind = [&](std::size_t i) { return plain.rows_[i].size() < rows_[i].size(); };
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      while (behind(i)) plain.step();
      const std::size_t whole = rows_[i].size() - (is_held(rows_[i].back()) ? 1 : 0);
      for (std::size_t at = 0; at < whole; ++at) {
        ASSERT_TRUE(plain.rows_[i][at] == rows_[i][at])
            << "environment " << i << ", row " << at << " of " << whole << ": "
            << describe(rows_[i][at]) << ", without a limit " << describe(plain.rows_[i][at]);
      }
    }
  }

 private:
  void act(const Ids& ids) {
    for (const std::int64_t id : ids) {
      const auto at = static_cast<std::size_t>(id);
      envs_.actions()[0].as<std::int64_t>()[at] =
          static_cast<std::int64_t>((at * 31 + rows_[at].size() * 7) % 800);
    }
  }
  void take(const Batch& batch, const Ids& ids) {
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      if (batch.fault[slot] != 0) {
        EXPECT_EQ(batch.reward[slot], 0);
        ++(batch.fault[slot] == static_cast<int>(RowFault::kDown) ? down_ : faults_);
        continue;
      }
      std::vector<Row>& rows = rows_[static_cast<std::size_t>(ids[slot])];
      Row row = row_of(batch, slot);
      if (!rows.empty() && is_held(rows.back())) {
        EXPECT_EQ(row.flags, kReset);
        rows.back().obs = row.obs;
        rows.back().flags |= kReset;
      } else {
        rows.push_back(std::move(row));
      }
    }
  }

  VectorEnv& envs_;
  std::vector<std::vector<Row>> rows_;
  int down_ = 0;
  int faults_ = 0;
};

TEST(PoolVectorEnvMemory, ReplacedWorkersGiveTheSameTrajectories) {
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    for (const auto& [batch_size, cohorts] :
         std::vector<std::pair<int, int>>{{3, 0}, {1, 0}, {5, 0}, {6, 0}, {0, 2}, {0, 3}}) {
      SCOPED_TRACE(std::to_string(batch_size) + " " + std::to_string(cohorts));
      auto envs = make_pool_toys(make_toy_pool(Kind::kForkserver, 2), 6,
                                 recycling(batch_size, cohorts, mode), "", true);
      Player player(*envs);
      player.send(player.all());
      while (player.recycles() < 3) player.send(player.recv());
      EXPECT_EQ(player.faults(), 0);
      player.expect_the_same_without_a_limit(mode);
      for (const WorkerStats& worker : envs->stats().workers) EXPECT_EQ(worker.restarts, 0U);
    }
  }
}

TEST(PoolVectorEnvMemory, SynchronousStepsGiveTheSameTrajectories) {
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    auto envs =
        make_pool_toys(make_toy_pool(Kind::kForkserver, 2), 6, recycling(0, 0, mode), "", true);
    Player player(*envs);
    while (player.recycles() < 3) player.step();
    player.expect_the_same_without_a_limit(mode);
  }
}

TEST(PoolVectorEnvMemory, InArrivalOrderNobodyIsDownWhereOthersFillTheBatch) {
  auto envs = make_pool_toys(make_toy_pool(Kind::kForkserver, 3), 6, recycling(1), "", true);
  Player player(*envs);
  player.send(player.all());
  while (player.recycles() < 2) player.send(player.recv());
  EXPECT_EQ(player.down(), 0);
}

TEST(PoolVectorEnvMemory, OneThatIsLeftInTheMiddleOfAnEpisodeKeepsNobodyWaiting) {
  auto envs = make_pool_toys(make_toy_pool(Kind::kForkserver, 1), 2, recycling(1), "", true);
  Player player(*envs);
  for (int i = 0; i < 200; ++i) {
    player.send({0});
    EXPECT_EQ(player.recv(), Ids{0});
  }
  EXPECT_EQ(player.down(), 0);
  player.send({0, 1});
  while (player.recycles() < 2) player.send(player.recv());
  player.expect_the_same_without_a_limit(AutoresetMode::kNextStep);
}

TEST(PoolVectorEnvMemory, EverySessionOfASharedPoolMovesWhenItCan) {
  auto pool = make_toy_pool(Kind::kForkserver, 1);
  auto busy = make_pool_toys(pool, 2, recycling(1));
  auto idle = make_pool_toys(pool, 2, recycling(1));
  Player player(*busy), other(*idle);
  const int first = idle->health()[0].pid;
  const int before = other.recycles();
  player.send(player.all());
  while (player.recycles() < 3) player.send(player.recv());
  EXPECT_EQ(idle->health()[0].pid, first);
  EXPECT_NE(busy->health()[0].pid, first);
  other.send(other.all());
  while (other.recycles() == before) other.send(other.recv());
  EXPECT_NE(idle->health()[0].pid, first);
  for (const int now = player.recycles(); player.recycles() < now + 3;) player.send(player.recv());
  player.expect_the_same_without_a_limit(AutoresetMode::kNextStep);
  other.expect_the_same_without_a_limit(AutoresetMode::kNextStep);
  EXPECT_EQ(player.down() + player.faults() + other.faults(), 0);
  busy->close();
  for (const int now = other.recycles(); other.recycles() < now + 2;) other.send(other.recv());
}

TEST(PoolVectorEnvMemory, AWorkerKilledAnywhereInAMoveIsAFaultAndNothingElseIsLost) {
  for (const char* point : {"asked to hand over", "handed over", "attached", "taken over"}) {
    for (const int cohorts : {0, 2}) {
      SCOPED_TRACE(std::string(point) + " " + std::to_string(cohorts));
      Options options = recycling(cohorts > 0 ? 0 : 3, cohorts);
      options.faults.on_fault = OnFault::kRestart;
      options.faults.backoff = options.faults.max_backoff = 1ms;
      options.faults.max_restarts = 1000;
      auto envs = make_pool_toys(make_toy_pool(Kind::kForkserver, 2), 6, options,
                                 std::string("kill at ") + point + " 1", true);
      Player player(*envs);
      player.send(player.all());
      std::uint64_t deaths = 0;
      for (int batch = 0; deaths < 3 && batch < 1'000'000; ++batch) {
        player.send(player.recv());
        deaths = 0;
        for (const WorkerHealth& worker : envs->health()) {
          deaths += worker.faults[static_cast<std::size_t>(FaultKind::kKilled)];
        }
        if (std::string(point) == "handed over" && player.recycles() > 5) break;
      }
      envs->discard(30s);
      EXPECT_EQ(envs->in_flight(), 0);
    }
  }
}

TEST(PoolVectorEnvMemory, ASuccessorThatIsKilledCostsNothing) {
  auto pool = make_toy_pool(Kind::kForkserver, 1);
  auto envs = make_pool_toys(pool, 2, recycling(1));
  Player player(*envs);
  const int first = envs->health()[0].pid;
  player.send({0});  // environment 1 is left in its episode, so that the successor waits
  while (pool->pid(0) == first) player.send(player.recv());
  const std::uint64_t exits = pool->exits();
  ::kill(pool->pid(0), SIGKILL);
  while (pool->exits() == exits) player.send(player.recv());
  EXPECT_EQ(envs->health()[0].pid, first);
  player.send({1});
  for (int i = 0; i < 100; ++i) player.send(player.recv());
  EXPECT_EQ(player.faults() + player.down(), 0);
  player.expect_the_same_without_a_limit(AutoresetMode::kNextStep);
}

TEST(PoolVectorEnvMemory, WithAutoresetDisabledAResetOfAllIsTheMoment) {
  auto envs = make_pool_toys(make_toy_pool(Kind::kForkserver, 1), 2,
                             recycling(1, 0, AutoresetMode::kDisabled), "", true);
  const Recorded first = record(envs->reset(std::uint64_t{3}));
  while (envs->health()[0].recycles < 2) {
    envs->send(Ids{0});
    envs->recv(30s);
    EXPECT_EQ(record(envs->reset(std::uint64_t{3})).obs, first.obs);
  }
}

TEST(PoolVectorEnvMemory, NativeEnvironmentsHandTheirStreamsOver) {
  const auto start = [](std::uint64_t limit) {
    auto pool =
        std::make_shared<WorkerPool>(make_launcher(Kind::kForkserver), native_pool_specs(1));
    std::vector<PoolVectorEnv::Payload> payloads{
        {2, native_pool_payload("shoal/CartPole-v1", R"({"max_episode_steps": 5})")}};
    return std::make_unique<PoolVectorEnv>(std::move(pool), std::move(payloads),
                                           Options{.memory_limit = limit, .batch_size = 2}, true);
  };
  auto recycled = start(1), plain = start(0);
  Recorded ours = record(recycled->reset(std::uint64_t{1}));
  EXPECT_EQ(ours, record(plain->reset(std::uint64_t{1})));
  while (recycled->health()[0].recycles < 3) {
    for (auto* envs : {recycled.get(), plain.get()}) {
      set_actions(*envs, {0, 1});
      envs->step_async();
    }
    // Both end their episodes at the same step: nobody is down.
    EXPECT_EQ(record(recycled->wait()), record(plain->wait()));
  }
}

}  // namespace
}  // namespace shoal::vector::testing
