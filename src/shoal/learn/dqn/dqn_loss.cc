#include "shoal/learn/dqn/dqn_loss.h"

#include <algorithm>
#include <cmath>

#include "shoal/learn/dqn/q_policy.h"

namespace shoal::learn {

DqnLosses dqn_loss(const DqnRows& rows, TdLoss form, std::span<float> d_q,
                   std::span<double> td_errors) {
  const std::size_t count = rows.action.size();
  const std::size_t n = rows.actions;
  const float each = 1.0F / static_cast<float>(count);
  DqnLosses losses;
  std::ranges::fill(d_q, 0.0F);
  for (std::size_t r = 0; r < count; ++r) {
    const auto q_target = rows.q_target.subspan(r * n, n);
    const auto chooses = rows.q_next.empty() ? q_target : rows.q_next.subspan(r * n, n);
    const auto best = static_cast<std::size_t>(best_of(chooses));
    const float target = rows.returns[r] + rows.discounts[r] * q_target[best];
    const std::size_t taken = r * n + static_cast<std::size_t>(rows.action[r]);
    const float error = rows.q[taken] - target;
    const float size = std::abs(error);
    const bool linear = form == TdLoss::kHuber && size >= 1.0F;
    const float square = form == TdLoss::kHuber ? 0.5F * error * error : error * error;
    const float slope = form == TdLoss::kHuber ? std::clamp(error, -1.0F, 1.0F) : 2.0F * error;
    losses.loss += static_cast<double>(rows.weights[r] * (linear ? size - 0.5F : square));
    losses.q_value += static_cast<double>(rows.q[taken]);
    d_q[taken] = each * rows.weights[r] * slope;
    td_errors[r] = static_cast<double>(size);
  }
  losses.loss /= static_cast<double>(count);
  losses.q_value /= static_cast<double>(count);
  return losses;
}

}  // namespace shoal::learn
