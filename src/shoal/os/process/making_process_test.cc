#include "shoal/os/process/making_process.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using testing::Child;

TEST(MakingProcess, AForkedChildIsAnother) {
  const MakingProcess made;
  EXPECT_TRUE(made.is_this());
  EXPECT_NO_THROW(made.require("the pool"));
  Child child([&] {
    if (made.is_this()) return 1;
    try {
      made.require("the pool");
    } catch (const InvalidState& error) {
      const std::string text = error.what();
      return text.find("the pool belongs to process") == std::string::npos ? 2 : 0;
    }
    return 3;
  });
  const auto end = child.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(*end, (ProcessEnd{.code = 0}));
}

/// Tells when the object that holds its content is destroyed.
struct Held {
  explicit Held(int& its_ends) : ends(&its_ends) {}
  Held(Held&& other) noexcept : ends(std::exchange(other.ends, nullptr)) { last = this; }
  ~Held() {
    if (ends != nullptr) ++*ends;
  }
  int* ends;
  static inline const Held* last = nullptr;  // so that it is no leak
};

TEST(Abandon, WhatWasMovedIsNeverDestroyed) {
  int ends = 0;
  {
    Held held(ends);
    abandon(std::move(held));
    ASSERT_NE(Held::last, nullptr);
    EXPECT_EQ(Held::last->ends, &ends);
  }
  EXPECT_EQ(ends, 0);
}

}  // namespace
}  // namespace shoal::os
