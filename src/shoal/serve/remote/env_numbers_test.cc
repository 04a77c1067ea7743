#include "shoal/serve/remote/env_numbers.h"

#include <gtest/gtest.h>

namespace shoal::serve {
namespace {

TEST(EnvNumbers, EachEnvironmentOfEachClientHasItsOwn) {
  EnvNumbers numbers;
  const auto first = numbers.of(0, 1, 0);
  EXPECT_TRUE(first.is_new);
  for (const auto& [model, client, env] : {std::tuple{0U, 1U, 1}, {0U, 2U, 0}, {1U, 1U, 0}}) {
    const auto other = numbers.of(model, client, env);
    EXPECT_TRUE(other.is_new);
    EXPECT_NE(other.env, first.env);
  }
  const auto again = numbers.of(0, 1, 0);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.env, first.env);
}

TEST(EnvNumbers, ThatOfAClientThatHasGoneIsUsedAgainOnceItsBatchesAreBack) {
  EnvNumbers numbers;
  const auto old = numbers.of(0, 1, -1);
  static_cast<void>(numbers.of(0, 2, 0));
  numbers.forget(1, 5);
  EXPECT_NE(numbers.of(0, 3, 0).env, old.env) << "batch 5 may have a row of the old one";
  numbers.came_back(5);
  EXPECT_NE(numbers.of(0, 3, 1).env, old.env);
  numbers.came_back(6);
  const auto next = numbers.of(0, 3, 2);
  EXPECT_EQ(next.env, old.env);
  EXPECT_TRUE(next.is_new);
  EXPECT_FALSE(numbers.of(0, 2, 0).is_new) << "the others keep theirs";
}

}  // namespace
}  // namespace shoal::serve
