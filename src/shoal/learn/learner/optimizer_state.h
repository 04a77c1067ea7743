// An optimiser's state in a learner's, and back.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/optimizer/optimizer.h"

namespace shoal::learn {

class OptimizerState {
 public:
  /// Adds an optimiser's averages, by the names of the parameters, and its steps, as the counter
  /// `steps`: one of several optimisers has another.
  static void save(Optimizer& optimizer, const Parameters& layout, LearnerState& state,
                   const char* steps = kSteps);

  /// What save() wrote of such an optimiser, which stays as it is. Throws InvalidArgument when it
  /// is of another.
  static OptimizerState read(const LearnerState& state, Optimizer& optimizer,
                             const Parameters& layout, const char* steps = kSteps);

  void put_into(Optimizer& optimizer) const;

 private:
  static constexpr const char* kSteps = "optimizer_steps";

  std::vector<AlignedFloats> averages_;
  std::int64_t steps_ = 0;
};

}  // namespace shoal::learn
