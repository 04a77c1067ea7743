#include "shoal/learn/ppo/ppo_config.h"

#include "shoal/learn/config/option.h"

namespace shoal::learn {

void validate(const PpoConfig& c) {
  validate(static_cast<const LearnerConfig&>(c));
  const auto check = check_option;
  check(c.batch_size >= 2, "batch_size", c.batch_size, "at least 2");
  check(c.epochs >= 1, "epochs", c.epochs, "at least 1");
  check(c.clip_range > 0, "clip_range", c.clip_range, "above 0");
  check(!c.clip_range_value || *c.clip_range_value > 0, "clip_range_value",
        c.clip_range_value.value_or(0), "above 0 or null");
  check(!c.target_kl || *c.target_kl > 0, "target_kl", c.target_kl.value_or(0), "above 0 or null");
  validate(c.ranks);
  check(c.shards >= 0, "shards", c.shards, "0 (one for each rank) or more");
}

}  // namespace shoal::learn
