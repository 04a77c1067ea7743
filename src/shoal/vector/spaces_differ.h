// The refusal of environments that do not fit into one batch.
#pragma once

#include "shoal/os/error.h"

namespace shoal::vector {

/// Environments of one batch have different spaces (Python: shoal.errors.SpacesDiffer, a
/// ValueError).
class SpacesDiffer : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

}  // namespace shoal::vector
