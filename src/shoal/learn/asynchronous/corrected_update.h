// An update that corrects for the age of the weights that a rollout was collected with.
//
// Threads: one at a time. Bits depend on what those of the Update that it is depend on.
#pragma once

#include "shoal/learn/asynchronous/asynchronous_options.h"
#include "shoal/learn/asynchronous/off_policy_advantages.h"

namespace shoal::learn {

/// An Update, which is a RolloutUpdate, with V-trace's advantages and targets.
template <class Update>
class CorrectedUpdate final : public Update {
 public:
  /// Borrows the policy. `config` has the Update's options and AsynchronousOptions.
  template <class Config>
  CorrectedUpdate(ActorCriticPolicy& policy, const Config& config)
      : Update(policy, config), options_(config) {}

 private:
  void estimate(collect::Rollout& rollout) override {
    estimate_off_policy(rollout, this->policy_, this->config_, options_, this->advantages_);
  }

  const AsynchronousOptions options_;
};

}  // namespace shoal::learn
