// Spaces in the hello of a worker, as env/space_json.h writes them.
#pragma once

#include "shoal/env/space.h"
#include "shoal/process/codec.h"

namespace shoal::vector {

void put_space(process::ByteWriter& writer, const env::Space& space);

/// Throws Error for bytes that are no space.
env::Space get_space(process::ByteReader& reader);

}  // namespace shoal::vector
