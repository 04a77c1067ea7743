#include "shoal/env/space_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

using shm::DType;
constexpr double kInf = std::numeric_limits<double>::infinity();

Space through_text(const Space& space) {
  return space_from_json(nlohmann::json::parse(space_to_json(space).dump()));
}

TEST(SpaceJson, EverySpaceSurvivesTheTripThroughText) {
  const Space box = Box{{DType::kF32, {2}}, {-0.1, -kInf}, {0.10000000149011612, kInf}};
  const Space discrete = Discrete{5, -2, DType::kI32};
  const Space multi = MultiDiscrete{{3, 4}, {0, 1}, {2}, DType::kI64};
  const Space binary = MultiBinary{{2, 3}};
  const Space tuple = Tuple{{box, discrete}};
  const Space dict = Dict{{{"b", tuple}, {"a", binary}, {"c", multi}}};
  const Space opaque = Opaque{"module.Text", "Text(1, 5)"};
  for (const auto& space : {box, discrete, multi, binary, tuple, dict, opaque})
    EXPECT_EQ(through_text(space), space) << space_to_json(space).dump();
}

TEST(SpaceJson, WhatIsNotASpaceIsAnInvalidArgument) {
  for (const char* text :
       {"{}", "3", R"({"type": "Graph"})", R"({"type": "Discrete"})",
        R"({"type": "Box", "dtype": "float32", "shape": [1], "low": ["x"], "high": [1]})"})
    EXPECT_THROW(space_from_json(nlohmann::json::parse(text)), InvalidArgument) << text;
}

}  // namespace
}  // namespace shoal::env
