// shoal/SegmentedWorld-v0: pictures whose true segmentation is known.
#pragma once

#include <utility>

#include "shoal/env/registry.h"

namespace shoal::env::segmented {

/// Keyword `observation`: "rgb" (the default), uint8 [128, 128, 3]; "mask", uint8 [128, 128], each
/// element a Kind; "both", a Dict of mask and rgb. Its set_state() writes the observation of the
/// state.
std::pair<EnvSpec, BatchFactory> built_in();

}  // namespace shoal::env::segmented
