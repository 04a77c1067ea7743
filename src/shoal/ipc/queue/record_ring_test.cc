#include "shoal/ipc/queue/record_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>

namespace shoal::ipc {
namespace {

using layout::RecordKind;

/// A ring with the two positions that its owner keeps.
class Ring {
 public:
  explicit Ring(std::uint32_t log, std::uint32_t start = 0)
      : memory_(new(std::align_val_t(64)) std::byte[RecordRing::bytes_of(log)]),
        ring_(memory_.get(), log),
        begin_(start),
        end_(start) {}

  bool push(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    if (!ring_.fits(begin_, end_, RecordRing::units_of(bytes.size()))) return false;
    end_ = ring_.write(end_, {static_cast<std::uint32_t>(text.size()), RecordKind::kInline, 7, 0},
                       bytes);
    return true;
  }

  std::string pop() {
    const std::uint32_t at = ring_.skip_filler(begin_);
    EXPECT_EQ(ring_.header(at).tag, 7);
    std::string text(reinterpret_cast<const char*>(ring_.payload(at)), ring_.header(at).bytes);
    begin_ = ring_.next(at);
    return text;
  }

  Ring doubled() const {
    Ring larger(ring_.log() + 1, begin_);
    ring_.copy_to(larger.ring_, begin_, end_);
    larger.end_ = end_;
    return larger;
  }

  bool empty() const { return begin_ == end_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { operator delete[](data, std::align_val_t(64)); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  RecordRing ring_;
  std::uint32_t begin_, end_;
};

TEST(RecordRing, GivesBackWhatWasWrittenInOrder) {
  Ring ring(4);
  for (const char* text : {"", "a", "exactly 16 bytes", "seventeen bytes.."}) {
    ASSERT_TRUE(ring.push(text));
  }
  for (const char* text : {"", "a", "exactly 16 bytes", "seventeen bytes.."}) {
    EXPECT_EQ(ring.pop(), text);
  }
  EXPECT_TRUE(ring.empty());
}

TEST(RecordRing, IsFullToTheLastUnit) {
  Ring ring(2);
  EXPECT_FALSE(ring.push(std::string(49, 'x')));
  EXPECT_TRUE(ring.push(std::string(48, 'x')));
  EXPECT_FALSE(ring.push(""));
  EXPECT_EQ(ring.pop().size(), 48u);
  EXPECT_TRUE(ring.push(""));
}

TEST(RecordRing, RecordsStayWholeAtEveryOffsetAndAroundTheEndOfPositions) {
  std::mt19937 random(1);
  Ring ring(6, 0xffffff00u);
  std::deque<std::string> expected;
  for (int i = 0; i < 100'000; ++i) {
    std::string text(random() % 200, static_cast<char>('a' + i % 26));
    if (ring.push(text)) {
      expected.push_back(text);
    } else {
      ASSERT_FALSE(expected.empty());
      ASSERT_EQ(ring.pop(), expected.front());
      expected.pop_front();
    }
  }
}

TEST(RecordRing, ALargerRingContinuesWhereItWas) {
  for (const std::uint32_t start : {0u, 5u, 13u, 0xfffffffbu}) {
    Ring ring(4, start);
    std::deque<std::string> expected;
    for (int i = 0; i < 3; ++i) {
      expected.push_back(std::string(20 + i, static_cast<char>('a' + i)));
      ASSERT_TRUE(ring.push(expected.back()));
    }
    Ring larger = ring.doubled();
    for (int i = 0; larger.push(std::to_string(i)); ++i) expected.push_back(std::to_string(i));
    for (const std::string& text : expected) EXPECT_EQ(larger.pop(), text);
    EXPECT_TRUE(larger.empty());
  }
}

}  // namespace
}  // namespace shoal::ipc
