#include "shoal/learn/ppo/ppo_loss.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace shoal::learn {
namespace {

// One row's policy loss; adds to the sums that PPO alone has.
void policy_loss(float log_ratio, float advantage, float clip, RowLoss& row, PpoLosses& sums) {
  const float ratio = std::exp(log_ratio);
  const float clipped = std::clamp(ratio, 1.0F - clip, 1.0F + clip);
  const float plain_loss = -advantage * ratio;
  const float clipped_loss = -advantage * clipped;
  row.policy = std::max(plain_loss, clipped_loss);
  row.policy_by_logp = plain_loss >= clipped_loss ? plain_loss : 0.0F;
  sums.approx_kl += (ratio - 1.0F) - log_ratio;
  sums.clip_fraction += std::abs(ratio - 1.0F) > clip ? 1.0 : 0.0;
}

// One row's value loss.
void value_loss(float value, float old_value, float returns, const PpoClipping& clipping,
                RowLoss& row) {
  const float error = value - returns;
  row.value = error * error;
  row.value_by_value = 2.0F * error;
  if (!clipping.clip_range_value) return;
  const float range = *clipping.clip_range_value;
  const float moved = value - old_value;
  const float clipped_error = old_value + std::clamp(moved, -range, range) - returns;
  const bool within = std::abs(moved) <= range;
  if (clipping.pessimistic_value_clip && error * error > clipped_error * clipped_error) return;
  row.value = clipped_error * clipped_error;
  row.value_by_value = within ? 2.0F * clipped_error : 0.0F;
}

}  // namespace

PpoClipping clipping_of(const PpoConfig& config, double clip_range) {
  PpoClipping clip{.clip_range = static_cast<float>(clip_range),
                   .clip_range_value = {},
                   .pessimistic_value_clip = config.pessimistic_value_clip};
  if (config.clip_range_value) clip.clip_range_value = static_cast<float>(*config.clip_range_value);
  return clip;
}

PpoLosses PpoLoss::operator()(const LossRows& rows, const PpoClipping& clipping,
                              const LossCoefficients& coefficients, const LossDerivatives& by) {
  PpoLosses losses;
  static_cast<Losses&>(losses) = loss_(rows, coefficients, by, [&](std::size_t r, float logp) {
    RowLoss row;
    policy_loss(logp - rows.old_logp[r], rows.advantage[r], clipping.clip_range, row, losses);
    value_loss(rows.value[r], rows.old_value[r], rows.returns[r], clipping, row);
    return row;
  });
  for (double* sum : {&losses.approx_kl, &losses.clip_fraction})
    *sum /= static_cast<double>(rows.rows_of_mean());
  return losses;
}

}  // namespace shoal::learn
