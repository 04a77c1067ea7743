// What the rows of a rollout are worth to the policy of now, which is not the one that acted.
#pragma once

#include "shoal/collect/rollout.h"
#include "shoal/learn/asynchronous/asynchronous_options.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/actor_critic_policy.h"
#include "shoal/learn/learner/advantages.h"

namespace shoal::learn {

/// By V-trace (collect/vtrace.h), with gae_lambda as its lambda; advantages normalised over the
/// rollout where the configuration says so.
///
/// In `rollout`, values and log-probabilities become those of `policy`: what an update then
/// compares with is the policy that it began with. Where ends are replaced (same-step autoreset), the
/// rollout lacks the last observation of an episode that was truncated, whose value stays the one
/// that the actor gave.
void estimate_off_policy(collect::Rollout& rollout, ActorCriticPolicy& policy,
                         const LearnerConfig& config, const AsynchronousOptions& options,
                         Advantages& advantages);

}  // namespace shoal::learn
