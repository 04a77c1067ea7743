#include "shoal/vector/step/autoreset.h"

#include <gtest/gtest.h>

#include "shoal/os/error.h"

namespace shoal::vector {
namespace {

TEST(Autoreset, NextStepModeIsDueOnceAfterAnEnd) {
  Autoreset autoreset(AutoresetMode::kNextStep, 2);
  EXPECT_FALSE(autoreset.due(0));
  EXPECT_FALSE(autoreset.ended(0, true, false));
  EXPECT_FALSE(autoreset.ended(1, false, false));
  EXPECT_TRUE(autoreset.due(0));
  EXPECT_FALSE(autoreset.due(1));
  autoreset.was_reset(0);
  EXPECT_FALSE(autoreset.due(0));
}

TEST(Autoreset, TruncationEndsAsTerminationDoes) {
  Autoreset autoreset(AutoresetMode::kNextStep, 1);
  autoreset.ended(0, false, true);
  EXPECT_TRUE(autoreset.due(0));
}

TEST(Autoreset, SameStepModeAsksForAResetAtOnceAndIsNeverDue) {
  Autoreset autoreset(AutoresetMode::kSameStep, 1);
  EXPECT_TRUE(autoreset.ended(0, true, false));
  EXPECT_FALSE(autoreset.due(0));
  EXPECT_FALSE(autoreset.ended(0, false, false));
}

TEST(Autoreset, DisabledModeDoesNothing) {
  Autoreset autoreset(AutoresetMode::kDisabled, 1);
  EXPECT_FALSE(autoreset.ended(0, true, true));
  EXPECT_FALSE(autoreset.due(0));
}

TEST(AutoresetMode, NamesGoBothWays) {
  for (const auto mode :
       {AutoresetMode::kNextStep, AutoresetMode::kSameStep, AutoresetMode::kDisabled}) {
    EXPECT_EQ(autoreset_mode_from_name(name(mode)), mode);
  }
  EXPECT_THROW(autoreset_mode_from_name("NextStep"), InvalidArgument);
}

}  // namespace
}  // namespace shoal::vector
