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
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

class CollectingThread {
 public:
  /// Throws as Agent.
  CollectingThread(const env::Space& observation, const env::Space& action, int num_envs,
                   const LearnerConfig& config, std::uint64_t seed);
  /// Waits for the rollout under way.
  ~CollectingThread();
  CollectingThread(const CollectingThread&) = delete;
  CollectingThread& operator=(const CollectingThread&) = delete;

  /// As Learner::begin() and resume(); the rollouts that wait stay. Rests first.
  void begin(vector::VectorEnv& envs);
  void resume(vector::VectorEnv& envs, const vector::Batch& current);

  /// The weights of rollouts that are begun from now on.
  void publish(std::span<const float> parameters, std::int64_t version);
  /// Lets the actor begin rollouts until `rollouts` were begun since the start of the run. Throws
  /// InvalidState before begin() and resume().
  void allow(std::int64_t rollouts);
  /// The oldest rollout, waiting until it is there. Throws what the environments threw.
  CollectedRollout take();
  /// Memory for another one: a rollout that take() gave.
  void give_back(CollectedRollout rollout);

  /// Waits until all that was allowed has been collected, or the environments have failed.
  void finish();
  /// Waits for the rollout under way; no other is begun before the next allow().
  void rest() noexcept;

  /// The parts of a learner's state that are the actor's, those that wait included. At rest.
  void save(LearnerState& state) const;
  struct Loaded;
  /// What save() wrote. Throws InvalidArgument when it is of another kind of learner, and changes
  /// nothing.
  std::shared_ptr<Loaded> read(const LearnerState& state) const;
  /// `learned` rollouts were learned from before the state was saved.
  void put_back(Loaded& loaded, std::int64_t learned, std::uint64_t seed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
