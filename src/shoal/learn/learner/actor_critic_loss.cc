#include "shoal/learn/learner/actor_critic_loss.h"

namespace shoal::learn {

void ActorCriticLoss::evaluate(const LossRows& rows) {
  for (auto* of_rows : {&logp_, &entropy_, &d_logp_}) of_rows->resize(rows.value.size());
  log_probs_.resize(rows.head.size());
  distribution_.evaluate(rows.head, rows.log_std, rows.actions, logp_, entropy_, log_probs_);
}

Losses ActorCriticLoss::means(Losses sums, std::size_t count,
                              const LossCoefficients& coefficients) {
  for (double* sum : {&sums.policy, &sums.value, &sums.entropy}) *sum /= static_cast<double>(count);
  sums.total =
      sums.policy + coefficients.value_coef * sums.value - coefficients.entropy_coef * sums.entropy;
  return sums;
}

}  // namespace shoal::learn
