// Spaces as JSON, exact: how a worker tells of its spaces, and a checkpoint of what its policy sees
// and does.
//
//   {"type": "Box", "dtype": "float32", "shape": [4], "low": [-4.8, "-inf", …], "high": […]}
//   {"type": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
//   {"type": "MultiDiscrete", "nvec": […], "start": […], "shape": […], "dtype": "int64"}
//   {"type": "MultiBinary", "shape": [3]}
//   {"type": "Dict", "spaces": [["name", {…}], …]}      {"type": "Tuple", "spaces": [{…}, …]}
//   {"type": "Opaque", "of": "gymnasium.spaces.text.Text", "text": "Text(1, 5, …)"}
//
// A bound that is the same for all elements is one number in a list; one that is no finite number
// is "inf", "-inf" or "nan".
#pragma once

#include <nlohmann/json.hpp>

#include "shoal/env/space.h"

namespace shoal::env {

nlohmann::json space_to_json(const Space& space);

/// The inverse. Throws InvalidArgument for anything that space_to_json() does not make of a space
/// that there can be, for what is nested more than 64 deep, and for samples of more than a TiB.
Space space_from_json(const nlohmann::json& json);

}  // namespace shoal::env
