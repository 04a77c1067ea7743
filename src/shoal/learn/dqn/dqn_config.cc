#include "shoal/learn/dqn/dqn_config.h"

#include <algorithm>

#include "shoal/learn/config/option.h"

namespace shoal::learn {
namespace {

constexpr const char* kTdLosses[] = {"huber", "mse"};

}  // namespace

std::span<const char* const> value_names(TdLoss) { return kTdLosses; }

void validate(const DqnConfig& c) {
  validate(static_cast<const OffPolicyConfig&>(c));
  const auto check = check_option;
  check(c.target_update_interval >= 1, "target_update_interval",
        static_cast<double>(c.target_update_interval), "at least 1");
  check(c.exploration_initial >= 0 && c.exploration_initial <= 1, "exploration_initial",
        c.exploration_initial, "from 0 to 1");
  check(c.exploration_final >= 0 && c.exploration_final <= 1, "exploration_final",
        c.exploration_final, "from 0 to 1");
  check(c.exploration_fraction >= 0 && c.exploration_fraction <= 1, "exploration_fraction",
        c.exploration_fraction, "from 0 to 1");
}

double exploration(const DqnConfig& c, double remaining) noexcept {
  const double done = 1.0 - remaining;
  const double passed =
      c.exploration_fraction > 0 ? std::min(done / c.exploration_fraction, 1.0) : 1.0;
  return c.exploration_initial + passed * (c.exploration_final - c.exploration_initial);
}

}  // namespace shoal::learn
