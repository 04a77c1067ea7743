#include "shoal/learn/sac/sac_config.h"

#include <cmath>

#include "shoal/learn/config/option.h"

namespace shoal::learn {

void validate(const SacConfig& c) {
  validate(static_cast<const OffPolicyConfig&>(c));
  const auto check = check_option;
  check(std::isfinite(c.entropy_coef) && c.entropy_coef >= 0, "entropy_coef", c.entropy_coef,
        "0 or more");
  check(c.entropy_coef > 0 || !c.automatic_entropy, "entropy_coef", c.entropy_coef,
        "above 0 where the temperature is learned");
  if (c.target_entropy)
    check(std::isfinite(*c.target_entropy), "target_entropy", *c.target_entropy, "finite");
}

}  // namespace shoal::learn
