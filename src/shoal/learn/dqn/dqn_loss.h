// DQN's loss over a batch: the mean of weight * loss(TD error), and its derivative by the values.
//
//   target = returns + discount * Q'(next, a),  a = argmax Q(next, ·) (double: van Hasselt et al., 2016)
//                                                or argmax Q'(next, ·) (Mnih et al., 2015)
//   TD error = Q(obs, action) - target
#pragma once

#include <cstdint>
#include <span>

#include "shoal/learn/dqn/dqn_config.h"

namespace shoal::learn {

/// All of the same number of rows; q_… have `actions` elements a row.
struct DqnRows {
  std::size_t actions = 0;
  std::span<const float> q;         // online, of obs
  std::span<const float> q_next;    // online, of next_obs; empty unless double
  std::span<const float> q_target;  // target, of next_obs
  std::span<const std::int32_t> action;
  std::span<const float> returns;
  std::span<const float> discounts;
  std::span<const float> weights;
};

struct DqnLosses {
  double loss = 0;     // mean over the rows
  double q_value = 0;  // mean of the actions taken
};

/// Writes the derivative by `q` and each row's |TD error|.
DqnLosses dqn_loss(const DqnRows& rows, TdLoss form, std::span<float> d_q,
                   std::span<double> td_errors);

}  // namespace shoal::learn
