// What losses of a policy and a value share: from rows to means, and to the derivatives by the
// network's outputs. An algorithm says what one row costs.
//
//   loss = mean(policy) + value_coef * mean(value) - entropy_coef * mean(entropy)
//
// Threads: one at a time. Allocates only when there are more rows than ever before.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "shoal/learn/network/distribution.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// What a loss reads. Spans have one element a row, `head` head_size() of them.
struct LossRows {
  std::span<const float> head;
  std::span<const float> value;
  std::span<const float> log_std;  // empty unless Gaussian
  shm::TensorView actions;
  std::span<const float> old_logp;   // of the policy that acted
  std::span<const float> old_value;  // likewise
  std::span<const float> advantage;  // normalised already, if at all
  std::span<const float> returns;
  std::size_t total = 0;  // rows of the minibatch of which these are a part; 0: these are all
  std::size_t rows_of_mean() const noexcept { return total == 0 ? value.size() : total; }
};

/// What a loss writes: its derivatives by three of what it reads, of the same sizes.
struct LossDerivatives {
  std::span<float> head;
  std::span<float> value;
  std::span<float> log_std;
};

struct LossCoefficients {
  float value_coef = 0.5F;
  float entropy_coef = 0.0F;
};

/// Means over the rows, before their coefficients, and the loss. Of a part of a minibatch: what it
/// adds to the means.
struct Losses {
  double policy = 0;
  double value = 0;
  double entropy = 0;
  double total = 0;
};

/// What one row adds to the sums of policy and value, and the derivatives of that.
struct RowLoss {
  double policy = 0;
  float policy_by_logp = 0;
  double value = 0;
  float value_by_value = 0;
};

class ActorCriticLoss {
 public:
  explicit ActorCriticLoss(ActionDistribution distribution)
      : distribution_(std::move(distribution)) {}

  /// Returns the losses, and writes the derivatives of the total. Calls row_loss(r, logp) for each
  /// row in their order, with its action's log-probability; it returns a RowLoss.
  template <class RowLossOf>
  Losses operator()(const LossRows& rows, const LossCoefficients& coefficients,
                    const LossDerivatives& by, RowLossOf&& row_loss) {
    evaluate(rows);
    const std::size_t count = rows.value.size();
    const std::size_t total = rows.rows_of_mean();
    const float each = 1.0F / static_cast<float>(total);
    Losses sums;
    for (std::size_t r = 0; r < count; ++r) {
      const RowLoss row = row_loss(r, logp_[r]);
      sums.policy += row.policy;
      sums.value += row.value;
      sums.entropy += entropy_[r];
      d_logp_[r] = each * row.policy_by_logp;
      by.value[r] = each * coefficients.value_coef * row.value_by_value;
    }
    distribution_.backward(rows.head, rows.log_std, rows.actions, log_probs_, d_logp_,
                           -coefficients.entropy_coef * each, by.head, by.log_std);
    return means(sums, total, coefficients);
  }

 private:
  void evaluate(const LossRows& rows);
  static Losses means(Losses sums, std::size_t count, const LossCoefficients& coefficients);

  ActionDistribution distribution_;
  std::vector<float> logp_, entropy_, log_probs_, d_logp_;
};

}  // namespace shoal::learn
