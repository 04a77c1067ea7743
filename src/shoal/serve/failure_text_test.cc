#include "shoal/serve/failure_text.h"

#include <gtest/gtest.h>

#include <string>

#include "shoal/serve/client_slots.h"

namespace shoal::serve {
namespace {

constexpr std::size_t kMost = ClientSlots::kMaxTextBytes;

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  while (times-- > 0) all += text;
  return all;
}

TEST(FailureText, MessageAndTracebackComeBackApart) {
  const auto told = FailureText::decode(
      FailureText{"ValueError: too small\nsee page 3", "Traceback\n  …\n"}.encode());
  EXPECT_EQ(told.message, "ValueError: too small\nsee page 3");
  EXPECT_EQ(told.traceback, "Traceback\n  …\n");
}

TEST(FailureText, WithoutAZeroByteAllIsTheMessage) {
  EXPECT_EQ(FailureText::decode("no reply").message, "no reply");
  EXPECT_EQ(FailureText::decode("no reply").traceback, "");
  EXPECT_EQ(FailureText::decode("").message, "");
}

TEST(FailureText, AZeroByteOfTheMessageDoesNotEndIt) {
  const std::string message("a\0b", 3);
  const auto told = FailureText::decode(FailureText{message, "t"}.encode());
  EXPECT_EQ(told.message, "a b");
  EXPECT_EQ(told.traceback, "t");
}

TEST(FailureText, LongTextsAreCutBetweenTwoCharacters) {
  for (const std::string shift : {"", "x", "xx", "xxx"}) {
    for (const std::string character : {"é", "…", "😀"}) {
      const std::string text = shift + repeated(character, kMost) + shift;
      const std::string encoded = FailureText{text, text}.encode();
      EXPECT_LE(encoded.size(), kMost);
      EXPECT_GE(encoded.size(), kMost - 8);
      const auto told = FailureText::decode(encoded);
      EXPECT_TRUE(text.starts_with(told.message));
      EXPECT_TRUE(text.ends_with(told.traceback));
      EXPECT_EQ((told.message.size() - shift.size()) % character.size(), 0u);
      EXPECT_EQ((told.traceback.size() - shift.size()) % character.size(), 0u);
    }
  }
}

TEST(FailureText, AShortMessageLeavesItsRoomToTheTraceback) {
  const auto told = FailureText::decode(FailureText{"short", std::string(2 * kMost, 't')}.encode());
  EXPECT_EQ(told.message, "short");
  EXPECT_EQ(told.traceback.size(), kMost - 6);
}

}  // namespace
}  // namespace shoal::serve
