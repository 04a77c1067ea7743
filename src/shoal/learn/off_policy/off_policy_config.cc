#include "shoal/learn/off_policy/off_policy_config.h"

#include <fmt/format.h>

#include "shoal/learn/config/option.h"
#include "shoal/os/error.h"

namespace shoal::learn {

namespace {

constexpr std::int64_t kMostRows = 1'000'000'000'000;

}  // namespace

void validate(const OffPolicyConfig& c) {
  validate(static_cast<const LearnerConfig&>(c));
  const auto check = check_option;
  check(c.buffer_size >= 1 && c.buffer_size <= kMostRows, "buffer_size",
        static_cast<double>(c.buffer_size), "from 1 to 10^12");
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
  if (c.total_steps / c.train_freq <= c.learning_starts / c.train_freq)
    throw InvalidArgument(fmt::format(
        "configure training: train_freq = {} and total_steps = {}: no update comes after "
        "learning_starts = {}, so the run would learn nothing; lower train_freq, or raise "
        "total_steps",
        c.train_freq, c.total_steps, c.learning_starts));
  check(c.gradient_steps >= 1 || c.gradient_steps == -1, "gradient_steps", c.gradient_steps,
        "at least 1, or -1 (as many as train_freq)");
  check(c.n_step >= 1 && c.n_step <= 1000, "n_step", c.n_step, "from 1 to 1000");
  check(c.tau > 0 && c.tau <= 1, "tau", c.tau, "above 0 and at most 1");
}

}  // namespace shoal::learn
