// The last n observations as one.
#pragma once

#include <memory>

#include "shoal/env/batch_env.h"

namespace shoal::env {

/// The space of `n` samples of `space` along a new leading axis, as Gymnasium's
/// FrameStackObservation has it: leaf by leaf for Dict and Tuple.
Space stacked(const Space& space, int n);

/// `batch`, whose observations become the last `n`, oldest first. A reset fills all of them.
std::unique_ptr<BatchEnv> stack_frames(std::unique_ptr<BatchEnv> batch, int n);

}  // namespace shoal::env
