// One actor of A3C: it collects rollouts from environments of its own with the weights that it took
// last, and steps the shared parameters along the gradient of each (a2c_update.h), without a lock.
//
// Threads: one at a time.
// Death: on any line; see A3cArena, SharedOptimizer. The rollout under way is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/learn/a2c/a2c_update.h"
#include "shoal/learn/a3c/a3c_arena.h"
#include "shoal/learn/a3c/a3c_config.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/rollout_source.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

/// What an actor is told before it begins; a value.
struct ActorOrder {
  A3cConfig config;
  int actor = 0;                                // whose line in the arena it has
  int first_env = 0;                            // the number of its first environment among all
  std::uint64_t seed = 0;                       // of its environments and of what it draws
  std::string observation_space, action_space;  // as repr() writes those of the learner

  std::vector<std::byte> encode() const;
  /// Throws InvalidArgument for what encode() has not written.
  static ActorOrder decode(std::span<const std::byte> bytes);
};

class LearningActor {
 public:
  /// Borrows `envs`. Throws InvalidArgument where their spaces are not the learner's, Error where the
  /// arena is for another network.
  LearningActor(vector::VectorEnv& envs, const ActorOrder& order, os::Fd arena);

  /// Resets the environments, then learns while it is ordered to, and until as many steps are made as
  /// the run is to have. Returns when it is ordered to end. Throws what the environments throw.
  void run();

 private:
  bool begin_rollout();  // waits until it may; false: it is to end
  void take_weights();
  void learn_once(std::int64_t rollout);
  void report(const UpdateStats& update, double lag, double collect_seconds, double update_seconds);
  void tell_episodes();

  const ActorOrder order_;
  const std::int64_t steps_of_rollout_;
  vector::VectorEnv& envs_;
  Agent agent_;
  RolloutSource source_;
  A3cArena arena_;
  ActorLine line_;
  A2cUpdate update_;
  ActorTotals totals_;
  std::vector<collect::Episode> untold_;  // that the ring had no room for
  std::int64_t weights_ = -1;  // how many updates there were when they were taken; -1: none
};

}  // namespace shoal::learn
