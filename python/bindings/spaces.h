// Gymnasium's spaces and shoal::env::Space, each from the other.
#pragma once

#include <nanobind/nanobind.h>

#include "shoal/env/space.h"

namespace shoal::python {

/// The value of a gymnasium.spaces.Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of
/// them. Throws InvalidArgument naming the space, and where in `space` it stands, when it has no
/// fixed-size array form.
env::Space space_from_python(nanobind::handle space);

/// The Gymnasium space of a value, with a generator of its own.
nanobind::object space_to_python(const env::Space& space);

}  // namespace shoal::python
