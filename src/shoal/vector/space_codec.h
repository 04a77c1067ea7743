// Spaces as bytes, for the hello of a worker: exact, also for infinite bounds.
#pragma once

#include "shoal/env/space.h"
#include "shoal/process/codec.h"

namespace shoal::vector {

void put_space(process::ByteWriter& writer, const env::Space& space);

/// Throws Error for bytes that are no space.
env::Space get_space(process::ByteReader& reader);

}  // namespace shoal::vector
