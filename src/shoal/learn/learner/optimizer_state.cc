#include "shoal/learn/learner/optimizer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "shoal/learn/learner/state_arrays.h"

namespace shoal::learn {

void OptimizerState::save(Optimizer& optimizer, const Parameters& layout, LearnerState& state,
                          const char* steps) {
  for (const auto& average : optimizer.averages())
    save_flat(fmt::format("{}.", average.name), layout, average.values, state.optimizer);
  state.counters[steps] = optimizer.steps();
}

OptimizerState OptimizerState::read(const LearnerState& state, Optimizer& optimizer,
                                    const Parameters& layout, const char* steps) {
  OptimizerState read;
  for (const auto& average : optimizer.averages()) {
    auto& values = read.averages_.emplace_back(layout.flat().size());
    std::ranges::copy(average.values, values.data());  // what lies between parameters
    load_flat(state.optimizer, fmt::format("{}.", average.name), layout, values.span());
  }
  read.steps_ = counter(state, steps).get<std::int64_t>();
  return read;
}

void OptimizerState::put_into(Optimizer& optimizer) const {
  const auto averages = optimizer.averages();
  for (std::size_t k = 0; k < averages.size(); ++k)
    std::ranges::copy(averages_[k].span(), averages[k].values.begin());
  optimizer.set_steps(steps_);
}

}  // namespace shoal::learn
