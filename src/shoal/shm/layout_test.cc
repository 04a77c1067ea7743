#include "shoal/shm/layout.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "shoal/os/error.h"

namespace shoal::shm {
namespace {

TEST(LayoutBuilder, PlacesAreAlignedAndApart) {
  LayoutBuilder layout;
  EXPECT_EQ(layout.add_bytes(1), 0u);
  EXPECT_EQ(layout.add_bytes(1), kCacheLineBytes);
  EXPECT_EQ(layout.add_bytes(10, 1), kCacheLineBytes + 1);
  EXPECT_EQ((layout.add<std::uint64_t>(3, 1)), kCacheLineBytes + 16);  // at least the type's own
  EXPECT_EQ(layout.bytes(8), kCacheLineBytes + 40);
  EXPECT_EQ(layout.bytes(), 2 * kCacheLineBytes);
}

TEST(LayoutBuilder, NothingTakesNoRoom) {
  LayoutBuilder layout;
  EXPECT_EQ(layout.bytes(), 0u);
  EXPECT_EQ(layout.add_bytes(0), 0u);
  EXPECT_EQ(layout.add_bytes(4), 0u);
}

TEST(LayoutBuilder, TheSameCallsGiveTheSameOffsets) {
  const auto build = [](LayoutBuilder layout) {
    return std::pair{layout.add<double>(5), layout.add_bytes(77, 4096)};
  };
  EXPECT_EQ(build({}), build({}));
}

TEST(LayoutBuilder, AnAlignmentThatIsNoPowerOfTwoThrows) {
  LayoutBuilder layout;
  EXPECT_THROW(layout.add_bytes(1, 0), InvalidArgument);
  EXPECT_THROW(layout.add_bytes(1, 24), InvalidArgument);
}

TEST(LayoutBuilder, MoreThanTheAddressSpaceThrows) {
  LayoutBuilder layout;
  layout.add_bytes(100);
  EXPECT_THROW(layout.add_bytes(SIZE_MAX), InvalidArgument);
  EXPECT_THROW(layout.add<double>(SIZE_MAX / 4), InvalidArgument);
  EXPECT_THROW(layout.add_bytes(PTRDIFF_MAX - 64), InvalidArgument);
  EXPECT_EQ(layout.bytes(), kCacheLineBytes);
}

}  // namespace
}  // namespace shoal::shm
