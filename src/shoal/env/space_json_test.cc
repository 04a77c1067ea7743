#include "shoal/env/space_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "shoal/env/json_text.h"
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

TEST(SpaceJson, SpacesThatThereCannotBeAreRefused) {
  for (const char* text : {
           R"({"type": "Box", "dtype": "float32", "shape": [3], "low": [0, 1], "high": [1]})",
           R"({"type": "Box", "dtype": "float32", "shape": [-1], "low": [0], "high": [1]})",
           R"({"type": "Box", "dtype": "uint8", "shape": [4294967296, 4294967296, 4294967296],
               "low": [0], "high": [1]})",
           R"({"type": "Discrete", "n": 0, "start": 0, "dtype": "int64"})",
           R"({"type": "Discrete", "n": 2, "start": 9223372036854775807, "dtype": "int64"})",
           R"({"type": "MultiDiscrete", "nvec": [2], "start": [0, 0], "shape": [1],
               "dtype": "int64"})",
           R"({"type": "MultiBinary", "shape": [1099511627777]})",
       })
    EXPECT_THROW(space_from_json(nlohmann::json::parse(text)), InvalidArgument) << text;
}

TEST(JsonText, WhatNestsDeeperThanOursIsDiscarded) {
  const auto nested = [](int depth) {
    const auto n = static_cast<std::size_t>(depth);
    return std::string(n, '[') + std::string(n, ']');
  };
  EXPECT_FALSE(parse_json(nested(kMaxJsonDepth)).is_discarded());
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(parse_json(std::string(1'000'000, '[')).is_discarded());
  EXPECT_FALSE(parse_json('"' + nested(1000) + R"(\"[[")").is_discarded());
}

}  // namespace
}  // namespace shoal::env
