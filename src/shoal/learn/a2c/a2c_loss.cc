#include "shoal/learn/a2c/a2c_loss.h"

#include <cstddef>

namespace shoal::learn {

Losses A2cLoss::operator()(const LossRows& rows, const LossCoefficients& coefficients,
                           const LossDerivatives& by) {
  return loss_(rows, coefficients, by, [&](std::size_t r, float logp) {
    const float error = rows.value[r] - rows.returns[r];
    return RowLoss{.policy = -static_cast<double>(rows.advantage[r]) * logp,
                   .policy_by_logp = -rows.advantage[r],
                   .value = static_cast<double>(error) * error,
                   .value_by_value = 2.0F * error};
  });
}

}  // namespace shoal::learn
