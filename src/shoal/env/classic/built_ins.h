// The list of environments that Shoal brings, as plain data: nothing depends on static initialisers
// being linked in.
#pragma once

#include <utility>
#include <vector>

#include "shoal/env/registry.h"

namespace shoal::env::classic {

/// Gymnasium's classic control tasks as "shoal/…", with Gymnasium's time limits, reward thresholds
/// and arguments.
std::vector<std::pair<EnvSpec, BatchFactory>> built_ins();

}  // namespace shoal::env::classic
