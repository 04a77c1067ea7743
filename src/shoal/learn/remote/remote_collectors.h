// Collectors on other hosts, as their learner sees them: it listens, they come and go. Each is told
// what to step, and steps `num_envs` environments of its own; each of its rollouts is one of the
// learner's.
//
// A collector that is ready gets the newest weights and may begin a rollout: while fewer than
// `allowed` were begun, and fewer wait than there are collectors. So at most max_lag + 1 are begun
// and not learned from, which bounds memory, and collectors that are faster than their learner do
// not run ahead of it, which bounds the age of the weights. A rollout that is
// older all the same, since its collector is slow, is dropped and counted.
//
// Threads: the learner's calls those of RolloutSupply; any thread the rest. One of its own.
// Death: of a collector: its rollout under way is lost, and counted; another one's is begun for it.
// Of this process: the collectors see it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/learn/asynchronous/rollout_supply.h"
#include "shoal/learn/config/learner_config.h"

namespace shoal::learn {

class RemoteCollectors final : public RolloutSupply {
 public:
  struct Setup {
    std::string host;  // to listen on: an address of this machine
    int port = 0;      // 0: a free one
    std::string secret;
    env::Space observation_space;
    env::Space action_space;
    int num_envs = 0;  // of each collector
    LearnerConfig config;
    int max_lag = 1;
    std::uint64_t seed = 0;
    std::string run;            // its name
    std::uint64_t attempt = 0;  // which session of the run this is
    std::string assignment;     // what collectors are to step, for them to read
  };

  /// Listens from now on. Throws InvalidArgument without a secret beyond the loopback, Error where
  /// the port is taken.
  explicit RemoteCollectors(Setup setup);
  ~RemoteCollectors() override;
  RemoteCollectors(const RemoteCollectors&) = delete;
  RemoteCollectors& operator=(const RemoteCollectors&) = delete;

  int port() const;
  int num_envs() const;
  const env::Space& observation_space() const;
  const env::Space& action_space() const;

  /// One that is there.
  struct Collector {
    int number = 0;  // in the order in which they came, from 0
    std::string host;
    int pid = 0;
    std::int64_t rollouts = 0;  // that have come from it
    bool collecting = false;
  };
  std::vector<Collector> collectors() const;

  /// Tells the collectors that the run is over, or, where it may go on in another session, that this
  /// session is. Idempotent.
  void end(bool over) noexcept;

  /// InvalidState: the environments are the collectors'.
  void begin(vector::VectorEnv& envs) override;
  void resume(vector::VectorEnv& envs, const vector::Batch& current) override;
  void publish(std::span<const float> parameters, std::int64_t version) override;
  void allow(std::int64_t rollouts) override;
  /// Nothing after half a second without one.
  std::optional<CollectedRollout> take() override;
  void give_back(CollectedRollout rollout) override;
  void finish() override;
  /// Returns at once; rollouts under way go on.
  void rest() noexcept override;
  void report(IterationStats& stats) const override;
  void save(LearnerState& state) const override;
  std::shared_ptr<Loaded> read(const LearnerState& state) const override;
  void put_back(Loaded& loaded, std::int64_t learned, std::uint64_t seed) override;

 private:
  struct ItsLoaded;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
