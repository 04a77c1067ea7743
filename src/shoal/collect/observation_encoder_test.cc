#include "shoal/collect/observation_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

using shm::DType;

template <class T>
shm::TensorView view(std::vector<T>& values, std::int64_t rows, const shm::TensorSpec& row) {
  values.resize(static_cast<std::size_t>(rows * row.numel()));
  return {reinterpret_cast<std::byte*>(values.data()), rows, row};
}

TEST(ObservationEncoder, LeavesBecomeOneDenseVectorInTheirOrder) {
  env::Dict dict;
  dict.spaces.emplace_back("speed", env::Space{env::Box{{DType::kF64, {2}}, {-1}, {1}}});
  dict.spaces.emplace_back("gear",
                           env::Space{env::Discrete{.n = 3, .start = 1, .dtype = DType::kI64}});
  dict.spaces.emplace_back("lights", env::Space{env::MultiBinary{{2}}});
  dict.spaces.emplace_back(
      "cards", env::Space{env::MultiDiscrete{
                   .nvec = {2, 3}, .start = {0, 0}, .shape = {2}, .dtype = DType::kI64}});
  dict.spaces.emplace_back("radar", env::Space{env::Box{{DType::kU8, {1}}, {0}, {255}}});
  ObservationEncoder encoder(env::Space{dict});
  EXPECT_EQ(encoder.dense(), 2 + 3 + 2 + 5 + 1);
  ASSERT_EQ(encoder.specs().size(), 1U);

  std::vector<double> speed{0.25, -0.5};
  std::vector<std::int64_t> gear{2};
  std::vector<std::int8_t> lights{1, 0};
  std::vector<std::int64_t> cards{1, 0};
  std::vector<std::uint8_t> radar{51};
  const auto leaves = env::leaves(env::Space{dict});
  std::vector<shm::TensorView> raw;
  for (const auto& leaf : leaves) {
    if (leaf.path == "speed") raw.push_back(view(speed, 1, leaf.spec));
    if (leaf.path == "gear") raw.push_back(view(gear, 1, leaf.spec));
    if (leaf.path == "lights") raw.push_back(view(lights, 1, leaf.spec));
    if (leaf.path == "cards") raw.push_back(view(cards, 1, leaf.spec));
    if (leaf.path == "radar") raw.push_back(view(radar, 1, leaf.spec));
  }
  std::vector<float> dense;
  const std::vector<shm::TensorView> encoded{view(dense, 1, encoder.specs()[0])};
  encoder.encode(raw, encoded, false);
  EXPECT_EQ(dense,
            (std::vector<float>{0.25F, -0.5F, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 51 * (1.0F / 255)}));
}

TEST(ObservationEncoder, ImagesAreChannelsFirstBytesApartFromTheRest) {
  env::Dict dict;
  dict.spaces.emplace_back("camera", env::Space{env::Box{{DType::kU8, {40, 36, 3}}, {0}, {255}}});
  dict.spaces.emplace_back("speed", env::Space{env::Box{{DType::kF32, {1}}, {-1}, {1}}});
  ObservationEncoder encoder(env::Space{dict});
  ASSERT_EQ(encoder.specs().size(), 2U);
  EXPECT_EQ(encoder.specs()[0].shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(encoder.specs()[1].shape, (std::vector<std::int64_t>{3, 40, 36}));
  EXPECT_EQ(encoder.image_paths(), std::vector<std::string>{"camera"});

  std::vector<std::uint8_t> camera;
  std::vector<float> speed{0.5F};
  const auto camera_view = view(camera, 1, {DType::kU8, {40, 36, 3}});
  for (std::size_t k = 0; k < camera.size(); ++k) camera[k] = static_cast<std::uint8_t>(k * 7);
  const std::vector<shm::TensorView> raw{camera_view, view(speed, 1, {DType::kF32, {1}})};
  std::vector<float> dense;
  std::vector<std::uint8_t> image;
  const std::vector<shm::TensorView> encoded{view(dense, 1, encoder.specs()[0]),
                                             view(image, 1, encoder.specs()[1])};
  encoder.encode(raw, encoded, true);
  EXPECT_EQ(dense[0], 0.5F);
  for (std::size_t y : {0, 17, 39}) {
    for (std::size_t x : {0, 35}) {
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(image[(c * 40 + y) * 36 + x], camera[(y * 36 + x) * 3 + c]);
      }
    }
  }
}

TEST(ObservationEncoder, FramesThatAreStackedFirstStayAsTheyAre) {
  const ObservationEncoder encoder(env::Space{env::Box{{DType::kU8, {4, 84, 84}}, {0}, {255}}});
  EXPECT_FALSE(encoder.has_dense());
  EXPECT_EQ(encoder.specs()[0].shape, (std::vector<std::int64_t>{4, 84, 84}));
}

TEST(ObservationEncoder, ColouredFramesThatAreStackedAreChannelsOneFrameAfterTheOther) {
  ObservationEncoder encoder(env::Space{env::Box{{DType::kU8, {2, 40, 36, 3}}, {0}, {255}}});
  EXPECT_FALSE(encoder.has_dense());
  EXPECT_EQ(encoder.specs()[0].shape, (std::vector<std::int64_t>{6, 40, 36}));
  std::vector<std::uint8_t> frames;
  const auto raw = view(frames, 1, {DType::kU8, {2, 40, 36, 3}});
  for (std::size_t k = 0; k < frames.size(); ++k) frames[k] = static_cast<std::uint8_t>(k * 7);
  std::vector<std::uint8_t> image;
  const auto encoded = view(image, 1, encoder.specs()[0]);
  encoder.encode({&raw, 1}, {&encoded, 1}, false);
  for (std::size_t f : {0, 1}) {
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(image[((f * 3 + c) * 40 + 17) * 36 + 35],
                frames[((f * 40 + 17) * 36 + 35) * 3 + c]);
    }
  }
  const ObservationEncoder first(env::Space{env::Box{{DType::kU8, {2, 3, 40, 36}}, {0}, {255}}});
  EXPECT_EQ(first.specs()[0].shape, (std::vector<std::int64_t>{6, 40, 36}));
}

TEST(ObservationEncoder, ImagesTooSmallForTheNetworkAreFlattened) {
  const ObservationEncoder encoder(env::Space{env::Box{{DType::kU8, {8, 8, 3}}, {0}, {255}}});
  EXPECT_TRUE(encoder.image_paths().empty());
  EXPECT_EQ(encoder.dense(), 8 * 8 * 3);
}

TEST(ObservationEncoder, ChoicesThatNoVectorCanHoldAreRefused) {
  const env::Space most = env::Discrete{.n = std::numeric_limits<std::int64_t>::max()};
  const env::Space both = env::Tuple{{env::Discrete{.n = 13}, most}};
  EXPECT_THROW(ObservationEncoder{most}, InvalidArgument);
  EXPECT_THROW(ObservationEncoder{both}, InvalidArgument);
}

TEST(ObservationEncoder, NormalisesWithTheMomentsOfWhatItHasSeenAndClips) {
  ObservationEncoder encoder(env::Space{env::Box{{DType::kF32, {1}}, {-1e9}, {1e9}}},
                             {.normalize = true, .clip = 1.25});
  std::vector<float> seen{1, 2, 3, 4};
  std::vector<float> out;
  const std::vector<shm::TensorView> raw{view(seen, 4, {DType::kF32, {1}})};
  const std::vector<shm::TensorView> encoded{view(out, 4, encoder.specs()[0])};
  encoder.encode(raw, encoded, true);
  const double std = std::sqrt(1.25);
  EXPECT_NEAR(out[1], (2 - 2.5) / std, 1e-3);
  EXPECT_EQ(out[3], 1.25F) << "clipped from " << 1.5 / std;
  const double count = encoder.moments().count();
  seen = {100, 100, 100, 100};
  encoder.encode(raw, encoded, false);
  EXPECT_EQ(encoder.moments().count(), count)
      << "encoding without learning must not change the moments";
}

TEST(ObservationEncoder, RowsThatAreNotFiniteTeachNothingAndStayAsTheyAre) {
  const auto make = [] {
    return ObservationEncoder(env::Space{env::Box{{DType::kF32, {2}}, {-1e9}, {1e9}}},
                              {.normalize = true});
  };
  ObservationEncoder encoder = make();
  ObservationEncoder alone = make();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> seen{1, 2, kNan, 7, 3, 5, 8, -kInfinity};
  std::vector<float> finite{1, 2, 3, 5};
  std::vector<float> out, out_alone;
  const std::vector<shm::TensorView> encoded{view(out, 4, encoder.specs()[0])};
  const std::vector<shm::TensorView> to_alone{view(out_alone, 2, encoder.specs()[0])};
  encoder.encode(std::vector{view(seen, 4, {DType::kF32, {2}})}, encoded, true);
  alone.encode(std::vector{view(finite, 2, {DType::kF32, {2}})}, to_alone, true);
  EXPECT_EQ(encoder.moments().count(), alone.moments().count());
  EXPECT_TRUE(std::ranges::equal(encoder.moments().var(), alone.moments().var()));
  EXPECT_EQ((std::vector{out[0], out[1], out[4], out[5]}), out_alone);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_EQ(out[7], -kInfinity);
}

TEST(ObservationEncoder, OneHotElementsAreNotNormalised) {
  env::Dict dict;
  dict.spaces.emplace_back("gear", env::Space{env::Discrete{.n = 2, .dtype = DType::kI64}});
  dict.spaces.emplace_back("speed", env::Space{env::Box{{DType::kF32, {1}}, {-1}, {1}}});
  ObservationEncoder encoder(env::Space{dict}, {.normalize = true});
  EXPECT_EQ(encoder.moments().size(), 1U);
  std::vector<std::int64_t> gear{1, 1};
  std::vector<float> speed{3, 5};
  std::vector<float> out;
  const std::vector<shm::TensorView> raw{view(gear, 2, {DType::kI64, {}}),
                                         view(speed, 2, {DType::kF32, {1}})};
  const std::vector<shm::TensorView> encoded{view(out, 2, encoder.specs()[0])};
  encoder.encode(raw, encoded, true);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 1);
  EXPECT_NEAR(out[2], -1, 1e-3);
}

TEST(ObservationEncoder, OneRowIsEncodedAsAmongMany) {
  ObservationEncoder encoder(env::Space{env::Box{{DType::kF32, {2}}, {-1}, {1}}},
                             {.normalize = true});
  std::vector<float> seen{1, 2, 3, 5, 8, 13};
  std::vector<float> all, one;
  const std::vector<shm::TensorView> raw{view(seen, 3, {DType::kF32, {2}})};
  const std::vector<shm::TensorView> to_all{view(all, 3, encoder.specs()[0])};
  encoder.encode(raw, to_all, true);
  const std::vector<shm::TensorView> to_one{view(one, 2, encoder.specs()[0])};
  encoder.encode_row(raw, 2, to_one, 1);
  EXPECT_EQ(one, (std::vector<float>{0, 0, all[4], all[5]}));
}

TEST(ObservationEncoder, ASpaceWithoutArraysIsRefused) {
  const env::Space space(
      env::Dict{{{"a", env::Discrete{.n = 2}}, {"b", env::Opaque{"T", "Text(1, 5)"}}}});
  EXPECT_THROW(ObservationEncoder encoder(space), InvalidArgument);
}

TEST(ObservationEncoder, AnIndexOutsideItsSpaceIsAnError) {
  ObservationEncoder encoder(env::Space{env::Discrete{.n = 3, .start = 1, .dtype = DType::kI64}});
  std::vector<std::int64_t> value{4};
  std::vector<float> out;
  const std::vector<shm::TensorView> raw{view(value, 1, {DType::kI64, {}})};
  const std::vector<shm::TensorView> encoded{view(out, 1, encoder.specs()[0])};
  EXPECT_THROW(encoder.encode(raw, encoded, false), InvalidArgument);
}

}  // namespace
}  // namespace shoal::collect
