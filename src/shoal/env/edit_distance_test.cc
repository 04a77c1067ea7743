#include "shoal/env/edit_distance.h"

#include <gtest/gtest.h>

namespace shoal::env {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, SwappedNeighboursAreOneChange) {
  EXPECT_EQ(edit_distance("gamma", "gmama"), 1u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);  // no character is changed twice
}

}  // namespace
}  // namespace shoal::env
