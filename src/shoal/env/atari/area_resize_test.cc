#include "shoal/env/atari/area_resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "shoal/env/atari/testing/noise_picture.h"
#include "shoal/os/error.h"
#include "shoal/os/fnv1a.h"

namespace shoal::env {
namespace {

// Of OpenCV 5.0.0 and 4.14.0 (testing/opencv_pictures.py prints them).
struct Golden {
  PictureSize from;
  PictureSize to;
  int channels;
  std::uint64_t hash;
};
constexpr Golden kGolden[] = {
    {{160, 210}, {84, 84}, 1, 0xf7b1e7ef77ec6dde},  {{160, 210}, {84, 84}, 3, 0x37614a27e75e74a7},
    {{160, 250}, {84, 84}, 1, 0xa2818da7665e90a1},  {{160, 210}, {80, 105}, 1, 0xae409534d0332714},
    {{160, 210}, {40, 42}, 3, 0xc1e14d16deb339a4},  {{160, 210}, {160, 210}, 1, 0x0d7fd08d8e6da133},
    {{160, 210}, {160, 84}, 1, 0xee84d967f887d623}, {{160, 210}, {159, 1}, 1, 0x470b8851bd4e41a4},
    {{7, 5}, {3, 4}, 1, 0xe61819837f6a5a45},
};

TEST(AreaResize, PicturesAreOpenCvsBitForBit) {
  for (const Golden& golden : kGolden) {
    const AreaResize resize(golden.from, golden.to, golden.channels);
    const auto picture = noise_picture(
        static_cast<std::size_t>(golden.from.width * golden.from.height * golden.channels));
    std::vector<std::uint8_t> small(
        static_cast<std::size_t>(resize.row_values() * golden.to.height));
    resize.resize(picture.data(), small.data());
    EXPECT_EQ(os::fnv1a(std::as_bytes(std::span(small))), golden.hash)
        << golden.from.width << " x " << golden.from.height << " to " << golden.to.width << " x "
        << golden.to.height << ", " << golden.channels << " values a pixel";
  }
}

TEST(AreaResize, ARowOfTheResultReadsTheRowsThatItNames) {
  const AreaResize resize({2, 5}, {2, 2}, 1);
  EXPECT_EQ(resize.first_row(0), 0);
  EXPECT_EQ(resize.last_row(0), 2);
  EXPECT_EQ(resize.first_row(1), 2);
  EXPECT_EQ(resize.last_row(1), 4);
}

TEST(AreaResize, APictureThatWouldGrowIsRefusedWithTheLimits) {
  try {
    AreaResize({160, 210}, {168, 84}, 1);
    FAIL() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("160 x 210 pixels to 168 x 84: take from 1 to 160 columns"));
  }
  EXPECT_THROW(AreaResize({160, 210}, {84, 0}, 1), InvalidArgument);
}

}  // namespace
}  // namespace shoal::env
