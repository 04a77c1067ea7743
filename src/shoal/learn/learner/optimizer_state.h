// An optimiser's state in a learner's, and back.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/network/optimizer.h"
#include "shoal/learn/network/parameters.h"

namespace shoal::learn {

class OptimizerState {
 public:
  /// Adds an optimiser's averages, by the names of the parameters, and its steps.
  static void save(Optimizer& optimizer, const Parameters& layout, LearnerState& state);

  /// What save() wrote of such an optimiser, which stays as it is. Throws InvalidArgument when it
  /// is of another.
  static OptimizerState read(const LearnerState& state, Optimizer& optimizer,
                             const Parameters& layout);

  void put_into(Optimizer& optimizer) const;

 private:
  std::vector<AlignedFloats> averages_;
  std::int64_t steps_ = 0;
};

}  // namespace shoal::learn
