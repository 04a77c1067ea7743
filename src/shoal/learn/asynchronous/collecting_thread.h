// The actor of an asynchronous learner: a thread that steps environments with a policy of its own and
// hands over whole rollouts, each of one version of the weights.
//
//   learner                                   actor
//   publish(weights, version) ─ WeightStore ─▶ reads the newest before each rollout
//   allow(n)                  ───────────────▶ begins rollouts until n were begun
//   take()                    ◀─ in order ──── rollouts, waiting
//
// Who allows n rollouts before it has taken them all bounds the memory, and how old weights get.
//
// Threads: one calls (the learner's), beside the one of its own. The environments are the actor's
// from begin() or resume() on, but for the time after finish() or rest() and before the next allow().
// Death: what the environments throw ends the rollout under way, which is not handed over; take()
// throws it from then on, until begin() or resume().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/learn/asynchronous/collected_rollout.h"
#include "shoal/learn/asynchronous/rollout_supply.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

class CollectingThread final : public RolloutSupply {
 public:
  /// Throws as Agent.
  CollectingThread(const env::Space& observation, const env::Space& action, int num_envs,
                   const LearnerConfig& config, std::uint64_t seed);
  /// Waits for the rollout under way.
  ~CollectingThread() override;
  CollectingThread(const CollectingThread&) = delete;
  CollectingThread& operator=(const CollectingThread&) = delete;

  /// Rests first.
  void begin(vector::VectorEnv& envs) override;
  void resume(vector::VectorEnv& envs, const vector::Batch& current) override;

  void publish(std::span<const float> parameters, std::int64_t version) override;
  /// Throws InvalidState before begin() and resume().
  void allow(std::int64_t rollouts) override;
  /// Always one. Throws what the environments threw.
  std::optional<CollectedRollout> take() override;
  void give_back(CollectedRollout rollout) override;

  void finish() override;
  /// Waits for the rollout under way.
  void rest() noexcept override;

  void save(LearnerState& state) const override;
  std::shared_ptr<Loaded> read(const LearnerState& state) const override;
  void put_back(Loaded& loaded, std::int64_t learned, std::uint64_t seed) override;

 private:
  struct ItsLoaded;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
