#include "shoal/env/edit_distance.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(EditDistance, LengthsThatDifferByMoreThanTheLimitAreNotLookedInto) {
  EXPECT_EQ(edit_distance("kitten", "sitting", 1), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting", 0), 1u);
  const std::string endless(100'000'000, '[');  // a table of both would not fit
  EXPECT_EQ(edit_distance(endless, "learning_rate", 30), endless.size() - 13);
}

}  // namespace
}  // namespace shoal::env
