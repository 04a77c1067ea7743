// What learners from a replay are told, beside what all learners are. Counts are of environment steps,
// over all environments, whatever their number: with 8 environments a train_freq of 4 is two times
// gradient_steps after each step of all of them.
#pragma once

#include <cstdint>

#include "shoal/learn/config/learner_config.h"

namespace shoal::learn {

struct OffPolicyConfig : LearnerConfig {
  // Replay
  std::int64_t buffer_size = 1'000'000;  // rows over all environments; memory is taken at the start
  bool prioritized = false;              // sampled by priority (Schaul et al., 2016)
  double prioritized_alpha = 0.6;        // priority = (|TD error| + eps)^alpha
  double prioritized_beta = 0.4;  // exponent of the weights; rises linearly to 1 over the run
  double prioritized_eps = 1e-6;

  // Update
  std::int64_t learning_starts =
      100;  // steps before the first update, below total_steps; actions are random until then
  int batch_size = 256;
  std::int64_t train_freq = 1;  // steps between two times that it learns
  int gradient_steps = 1;       // updates each time; -1: as many as train_freq
  int n_step = 1;               // rows of a return before it bootstraps
  double tau = 1;               // by how much the target moves towards what is learned

  OffPolicyConfig() {
    num_steps =
        100;  // of each environment in an iteration: changes nothing but when it is looked at
    log_interval = 10;
    max_grad_norm = 0;
    adam_eps = 1e-8;
    activation = Activation::kRelu;
    orthogonal_init = false;
  }

  bool operator==(const OffPolicyConfig&) const = default;

  int updates_each_time() const noexcept {
    return gradient_steps < 0 ? static_cast<int>(train_freq) : gradient_steps;
  }
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its limits.
void validate(const OffPolicyConfig& config);

/// Calls visit(name, field) for each field that such a learner reads.
template <class Config, class Visit>
void for_each_off_policy_option(Config& c, Visit&& visit) {
  for_each_option_of_all(c, visit);
  visit("buffer_size", c.buffer_size);
  visit("prioritized", c.prioritized);
  visit("prioritized_alpha", c.prioritized_alpha);
  visit("prioritized_beta", c.prioritized_beta);
  visit("prioritized_eps", c.prioritized_eps);
  visit("learning_starts", c.learning_starts);
  visit("batch_size", c.batch_size);
  visit("train_freq", c.train_freq);
  visit("gradient_steps", c.gradient_steps);
  visit("n_step", c.n_step);
  visit("tau", c.tau);
}

}  // namespace shoal::learn
