// Spaces as JSON, so that a checkpoint alone says what its policy sees and does.
//
//   {"type": "Box", "dtype": "float32", "shape": [4], "low": [-4.8, "-inf", …], "high": […]}
//   {"type": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
//   {"type": "MultiDiscrete", "nvec": […], "start": […], "shape": […], "dtype": "int64"}
//   {"type": "MultiBinary", "shape": [3]}
//   {"type": "Dict", "spaces": [["name", {…}], …]}      {"type": "Tuple", "spaces": [{…}, …]}
//
// A bound that is the same for all elements is one number in a list; an infinite one is "inf" or
// "-inf".
#pragma once

#include <nlohmann/json.hpp>

#include "shoal/env/space.h"

namespace shoal::learn {

nlohmann::json space_to_json(const env::Space& space);

/// The inverse. Throws InvalidArgument for anything that space_to_json() does not make.
env::Space space_from_json(const nlohmann::json& json);

}  // namespace shoal::learn
