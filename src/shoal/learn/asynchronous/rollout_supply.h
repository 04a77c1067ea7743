// Where the rollouts of an asynchronous learner come from: whoever acts with the weights that it
// publishes.
//
// Who allows n rollouts before it has taken them all bounds the memory, and how old weights get.
//
// Threads: one calls (the learner's).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "shoal/learn/asynchronous/collected_rollout.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

class RolloutSupply {
 public:
  virtual ~RolloutSupply() = default;

  /// As Learner::begin() and resume(); the rollouts that wait stay.
  virtual void begin(vector::VectorEnv& envs) = 0;
  virtual void resume(vector::VectorEnv& envs, const vector::Batch& current) = 0;

  /// The weights of rollouts that are begun from now on: after so many updates.
  virtual void publish(std::span<const float> parameters, std::int64_t version) = 0;
  /// Lets rollouts be begun until `rollouts` were begun since the start of the run.
  virtual void allow(std::int64_t rollouts) = 0;
  /// The oldest rollout, waiting until it is there; nothing where none may come for a while yet, and
  /// the learner's owner has to be asked whether to go on. Throws what ended the actors.
  virtual std::optional<CollectedRollout> take() = 0;
  /// Memory for another one: a rollout that take() gave.
  virtual void give_back(CollectedRollout rollout) = 0;

  /// Waits until all that was allowed has been collected, or cannot be.
  virtual void finish() = 0;
  /// No rollout is begun before the next allow().
  virtual void rest() noexcept = 0;

  /// Adds what it knows of its actors.
  virtual void report(IterationStats&) const {}

  /// The parts of a learner's state that are the actors', those that wait included. At rest.
  virtual void save(LearnerState& state) const = 0;
  struct Loaded {
    virtual ~Loaded() = default;
  };
  /// What save() wrote. Throws InvalidArgument when it is of another kind of learner, and changes
  /// nothing.
  virtual std::shared_ptr<Loaded> read(const LearnerState& state) const = 0;
  /// `learned` rollouts were learned from before the state was saved.
  virtual void put_back(Loaded& loaded, std::int64_t learned, std::uint64_t seed) = 0;
};

}  // namespace shoal::learn
