// What shoal.WorkerOptions says to the engines.
#pragma once

#include <nanobind/nanobind.h>

#include "shoal/vector/vector_env.h"

namespace shoal::python {

/// `workers`: what WorkerOptions.for_engine() returns. Throws InvalidArgument for unknown keys.
void set_worker_options(vector::Options& options, const nanobind::dict& workers);

}  // namespace shoal::python
