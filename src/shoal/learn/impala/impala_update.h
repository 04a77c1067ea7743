// IMPALA's update: A2C's, with V-trace's advantages and targets.
//
// Threads: one at a time. Bits depend on the rollout and the parameters alone.
#pragma once

#include "shoal/learn/a2c/a2c_update.h"
#include "shoal/learn/asynchronous/asynchronous_options.h"
#include "shoal/learn/impala/impala_config.h"

namespace shoal::learn {

class ImpalaUpdate final : public A2cUpdate {
 public:
  /// Borrows the policy.
  ImpalaUpdate(ActorCriticPolicy& policy, const ImpalaConfig& config)
      : A2cUpdate(policy, config), options_(config) {}

 private:
  void estimate(collect::Rollout& rollout) override;

  const AsynchronousOptions options_;
};

}  // namespace shoal::learn
