#include "shoal/learn/off_policy/off_policy_config.h"

#include <fmt/format.h>

#include "shoal/learn/config/option.h"
#include "shoal/os/error.h"

namespace shoal::learn {

void validate(const OffPolicyConfig& c) {
  validate(static_cast<const LearnerConfig&>(c));
  const auto check = check_option;
  check(c.buffer_size >= 1, "buffer_size", static_cast<double>(c.buffer_size), "at least 1");
  check(c.prioritized_alpha >= 0, "prioritized_alpha", c.prioritized_alpha, "0 or more");
  check(c.prioritized_beta >= 0 && c.prioritized_beta <= 1, "prioritized_beta", c.prioritized_beta,
        "from 0 to 1");
  check(c.prioritized_eps > 0, "prioritized_eps", c.prioritized_eps, "above 0");
  check(c.learning_starts >= 0, "learning_starts", static_cast<double>(c.learning_starts),
        "0 or more");
  if (c.learning_starts >= c.total_steps)
    throw InvalidArgument(
        fmt::format("configure training: learning_starts = {} and total_steps = {}: the run would "
                    "end before it "
                    "learns; lower learning_starts, or raise total_steps above it",
                    c.learning_starts, c.total_steps));
  check(c.batch_size >= 1, "batch_size", c.batch_size, "at least 1");
  check(c.train_freq >= 1 && c.train_freq <= 1'000'000, "train_freq",
        static_cast<double>(c.train_freq), "from 1 to 1000000");
  check(c.gradient_steps >= 1 || c.gradient_steps == -1, "gradient_steps", c.gradient_steps,
        "at least 1, or -1 (as many as train_freq)");
  check(c.n_step >= 1 && c.n_step <= 1000, "n_step", c.n_step, "from 1 to 1000");
  check(c.tau > 0 && c.tau <= 1, "tau", c.tau, "above 0 and at most 1");
}

}  // namespace shoal::learn
