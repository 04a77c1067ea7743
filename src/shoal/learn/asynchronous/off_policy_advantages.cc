#include "shoal/learn/asynchronous/off_policy_advantages.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "shoal/collect/vtrace.h"

namespace shoal::learn {
namespace {

/// Values and next values by `policy`; returns the logarithms of its probabilities by those of the
/// actor, whose place they take.
std::vector<float> value_again(collect::Rollout& rollout, ActorCriticPolicy& policy) {
  const std::size_t rows = rollout.size();
  const auto& distribution = policy.distribution();
  std::vector<float> head(rows * distribution.head_size()), log_probs(head.size());
  std::vector<float> logp(rows), entropy(rows);
  std::vector<float> last(static_cast<std::size_t>(rollout.envs()));
  policy.model().forward(rollout.obs(), {}, head, rollout.value());
  distribution.evaluate(head, policy.log_std(), rollout.action(), logp, entropy, log_probs);
  policy.model().forward(rollout.obs(rollout.steps()), {}, {}, last);

  std::vector<float> log_ratio(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    log_ratio[row] = logp[row] - rollout.logp()[row];
    rollout.logp()[row] = logp[row];
  }
  rollout.link_values(last);
  return log_ratio;
}

}  // namespace

void estimate_off_policy(collect::Rollout& rollout, ActorCriticPolicy& policy,
                         const LearnerConfig& config, const AsynchronousOptions& options,
                         Advantages& advantages) {
  const std::vector<float> log_ratio = value_again(rollout, policy);
  advantages.start(rollout);
  collect::vtrace({.steps = rollout.steps(),
                   .envs = rollout.envs(),
                   .log_ratio = log_ratio,
                   .reward = rollout.reward(),
                   .value = rollout.value(),
                   .next_value = rollout.next_value(),
                   .terminated = rollout.terminated(),
                   .truncated = rollout.truncated(),
                   .valid = rollout.valid(),
                   .gamma = static_cast<float>(config.gamma),
                   .lambda = static_cast<float>(config.gae_lambda),
                   .rho_bar = static_cast<float>(options.rho_bar),
                   .c_bar = static_cast<float>(options.c_bar),
                   .bootstrap_truncated = config.bootstrap_truncated},
                  advantages.advantage, advantages.returns);
  advantages.finish(config);
}

}  // namespace shoal::learn
