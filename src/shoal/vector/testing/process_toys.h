// What the tests of ProcessVectorEnv start with.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/testing/backends.h"
#include "shoal/vector/testing/toy_stepper.h"

namespace shoal::vector::testing {

// An action that is nothing special.
inline constexpr std::int64_t kAct = 1;

// Workers with these numbers of toys.
inline std::unique_ptr<ProcessVectorEnv> start(Kind kind, const std::vector<int>& counts,
                                               Options options = {}) {
  return std::make_unique<ProcessVectorEnv>(make_launcher(kind), toy_specs(counts), options);
}

inline Batch act(ProcessVectorEnv& envs, const std::vector<std::int64_t>& actions) {
  set_actions(envs, actions);
  return envs.step();
}

}  // namespace shoal::vector::testing
