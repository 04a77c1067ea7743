// Gymnasium's spaces and shoal::env::Space, each from the other.
#pragma once

#include <nanobind/nanobind.h>

#include "shoal/env/space.h"

namespace shoal::python {

/// The value of a gymnasium.Space: of a Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple
/// as what it is, of any other as env::Opaque. Throws InvalidArgument naming it, and where in
/// `space` it stands, for what is no space or has a dtype that Shoal has not.
env::Space space_from_python(nanobind::handle space);

/// Only what the rows must know of `space`, dtypes and shapes: spaces with different bounds are
/// equal then.
env::Space layout_of(const env::Space& space);

/// Whether the two are the same space. Spaces of a class without an equality of its own are when
/// they are of that class.
bool same_space(nanobind::handle a, nanobind::handle b);

/// The Gymnasium space of a value, with a generator of its own.
nanobind::object space_to_python(const env::Space& space);

}  // namespace shoal::python
