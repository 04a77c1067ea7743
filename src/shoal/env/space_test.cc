#include "shoal/env/space.h"

#include <gtest/gtest.h>

#include <limits>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

using shm::DType;

constexpr double kInf = std::numeric_limits<double>::infinity();

Space nested() {
  return Dict{{{"camera", Box{{DType::kU8, {2, 2}}, {0}, {255}}},
               {"joints", Tuple{{Discrete{3}, MultiBinary{{4}}}}}}};
}

TEST(Space, BoxReprNamesAUniformBoundOnce) {
  EXPECT_EQ(Space(Box{{DType::kF32, {4}}, {-1}, {1}}).repr(), "Box(-1.0, 1.0, (4,), float32)");
  EXPECT_EQ(Space(Box{{DType::kF32, {2}}, {-kInf, -kInf}, {kInf, kInf}}).repr(),
            "Box(-inf, inf, (2,), float32)");
  EXPECT_EQ(Space(Box{{DType::kU8, {84, 84, 4}}, {0}, {255}}).repr(),
            "Box(0, 255, (84, 84, 4), uint8)");
  EXPECT_EQ(Space(Box{{DType::kF64, {}}, {1e-5}, {2.5e16}}).repr(),
            "Box(1e-05, 2.5e+16, (), float64)");
}

TEST(Space, BoxReprAlignsDifferentBoundsAsNumPyDoes) {
  const double position = 4.8F;
  const double angle = 0.41887903F;
  const Space cart_pole =
      Box{{DType::kF32, {4}}, {-position, -kInf, -angle, -kInf}, {position, kInf, angle, kInf}};
  EXPECT_EQ(cart_pole.repr(),
            "Box([-4.8               -inf -0.41887903        -inf], "
            "[4.8               inf 0.41887903        inf], (4,), float32)");
  EXPECT_EQ(Space(Box{{DType::kF64, {2}}, {1e-5, 1.25}, {2, 3}}).repr(),
            "Box([1.00e-05 1.25e+00], [2. 3.], (2,), float64)");
  EXPECT_EQ(Space(Box{{DType::kI32, {2}}, {-10, 2}, {3, 30}}).repr(),
            "Box([-10   2], [ 3 30], (2,), int32)");
}

TEST(Space, ReprOfALargeBoundShowsItsEdges) {
  std::vector<double> low(2000, 0);
  low[0] = -1;
  EXPECT_EQ(Space(Box{{DType::kI64, {2000}}, low, {1}}).repr(),
            "Box([-1  0  0 ...  0  0  0], 1, (2000,), int64)");
}

TEST(Space, ReprsOfDiscreteKinds) {
  EXPECT_EQ(Space(Discrete{2}).repr(), "Discrete(2)");
  EXPECT_EQ(Space(Discrete{2, -1}).repr(), "Discrete(2, start=-1)");
  EXPECT_EQ(Space(Discrete{2, 0, DType::kI32}).repr(), "Discrete(2, dtype=int32)");
  EXPECT_EQ(Space(MultiDiscrete{{3, 22}, {0, 0}, {2}}).repr(), "MultiDiscrete([ 3 22])");
  EXPECT_EQ(Space(MultiDiscrete{{3, 2}, {0, 1}, {2}}).repr(), "MultiDiscrete([3 2], start=[0 1])");
  EXPECT_EQ(Space(MultiBinary{{5}}).repr(), "MultiBinary(5)");
  EXPECT_EQ(Space(MultiBinary{{2, 3}}).repr(), "MultiBinary((2, 3))");
}

TEST(Space, ReprOfNestedSpaces) {
  EXPECT_EQ(
      nested().repr(),
      "Dict('camera': Box(0, 255, (2, 2), uint8), 'joints': Tuple(Discrete(3), MultiBinary(4)))");
  EXPECT_EQ(Space(Dict{{{"it's", Discrete{1}}}}).repr(), "Dict(\"it's\": Discrete(1))");
}

TEST(Space, LeavesAreDepthFirstWithTheirPaths) {
  const auto found = leaves(nested());
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].path, "camera");
  EXPECT_EQ(found[0].spec, (shm::TensorSpec{DType::kU8, {2, 2}}));
  EXPECT_EQ(found[1].path, "joints/0");
  EXPECT_EQ(found[1].spec, (shm::TensorSpec{DType::kI64, {}}));
  EXPECT_EQ(found[2].path, "joints/1");
  EXPECT_EQ(found[2].spec, (shm::TensorSpec{DType::kI8, {4}}));
  EXPECT_EQ(found[2].space, Space(MultiBinary{{4}}));
}

TEST(Space, LeafOfAPlainSpaceIsItself) {
  const auto found = leaves(Discrete{3});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0], (Leaf{"", Discrete{3}, {DType::kI64, {}}}));
}

TEST(Space, AnOpaqueHasNoLeafAndIsFound) {
  const Space text(Opaque{"spaces.Text", "Text(1, 5)"});
  const Space mixed(Dict{{{"a", Discrete{2}}, {"b", Tuple{{MultiBinary{{2}}, text}}}}});
  EXPECT_EQ(leaves(mixed).size(), 2U);
  EXPECT_TRUE(leaves(text).empty());
  ASSERT_NE(first_opaque(mixed), nullptr);
  EXPECT_EQ(first_opaque(mixed)->text, "Text(1, 5)");
  EXPECT_EQ(first_opaque(nested()), nullptr);
  EXPECT_EQ(text.repr(), "Text(1, 5)");
  EXPECT_EQ(text, Space(Opaque{"spaces.Text", "otherwise printed"}));
  EXPECT_NE(text, Space(Opaque{"spaces.Graph", "Text(1, 5)"}));
}

TEST(Space, FloatBoxRoundsItsBounds) {
  EXPECT_EQ(
      float_box({-0.1, -1}, {0.1, 1}),
      (Box{{DType::kF32, {2}}, {static_cast<double>(-0.1F), -1}, {static_cast<double>(0.1F), 1}}));
  EXPECT_THROW(float_box({0}, {1, 2}), InvalidArgument);
}

TEST(Space, EqualityLooksAllTheWayDown) {
  EXPECT_EQ(nested(), nested());
  EXPECT_NE(nested(), Space(Dict{{{"camera", Box{{DType::kU8, {2, 2}}, {0}, {255}}},
                                  {"joints", Tuple{{Discrete{4}, MultiBinary{{4}}}}}}}));
  EXPECT_NE(Space(Discrete{2}), Space(MultiBinary{{2}}));
}

}  // namespace
}  // namespace shoal::env
