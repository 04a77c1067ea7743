#include "shoal/learn/checkpoint/space_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using shm::DType;
constexpr double kInf = std::numeric_limits<double>::infinity();

env::Space through_text(const env::Space& space) {
  return space_from_json(nlohmann::json::parse(space_to_json(space).dump()));
}

TEST(SpaceJson, EverySpaceSurvivesTheTripThroughText) {
  const env::Space box = env::Box{{DType::kF32, {2}}, {-0.1, -kInf}, {0.10000000149011612, kInf}};
  const env::Space discrete = env::Discrete{5, -2, DType::kI32};
  const env::Space multi = env::MultiDiscrete{{3, 4}, {0, 1}, {2}, DType::kI64};
  const env::Space binary = env::MultiBinary{{2, 3}};
  const env::Space tuple = env::Tuple{{box, discrete}};
  const env::Space dict = env::Dict{{{"b", tuple}, {"a", binary}, {"c", multi}}};
  for (const auto& space : {box, discrete, multi, binary, tuple, dict})
    EXPECT_EQ(through_text(space), space) << space_to_json(space).dump();
}

TEST(SpaceJson, WhatIsNotASpaceIsAnInvalidArgument) {
  for (const char* text :
       {"{}", "3", R"({"type": "Graph"})", R"({"type": "Discrete"})",
        R"({"type": "Box", "dtype": "float32", "shape": [1], "low": ["x"], "high": [1]})"})
    EXPECT_THROW(space_from_json(nlohmann::json::parse(text)), InvalidArgument) << text;
}

}  // namespace
}  // namespace shoal::learn
