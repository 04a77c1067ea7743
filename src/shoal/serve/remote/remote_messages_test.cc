#include "shoal/serve/remote/remote_messages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "shoal/os/error.h"

namespace shoal::serve {
namespace {

using Bytes = std::vector<std::byte>;

const RowSpec kSpec{{shm::DType::kI32, {2}}, {shm::DType::kU8, {}}};

Bytes two_rows() {
  static const std::int32_t numbers[] = {1, 2, 3, 4};
  static const std::uint8_t flags[] = {5, 6};
  const RowTag tags[] = {{.env = -7, .flags = RowTag::kReset, .age_ns = 8, .left_ns = 9}, {}};
  return pack_rows({.queue = 3, .rows = 2, .number = 11}, tags, kSpec,
                   [](std::size_t leaf, std::uint32_t) {
                     return leaf == 0 ? reinterpret_cast<const std::byte*>(numbers)
                                      : reinterpret_cast<const std::byte*>(flags);
                   });
}

Bytes two_replies() {
  static const std::int32_t numbers[] = {1, 2};
  static const std::uint8_t flag = 5;
  const ReplyTag tags[] = {{.status = ReplyStatus::kOk, .text_bytes = 0, .version = 4},
                           {.status = ReplyStatus::kModelError, .text_bytes = 2, .version = 5}};
  return pack_replies(
      {.queue = 3, .rows = 2, .number = 11}, tags, kSpec,
      [](std::size_t leaf, std::uint32_t row) {
        if (row == 1) return static_cast<const std::byte*>(nullptr);
        return leaf == 0 ? reinterpret_cast<const std::byte*>(numbers)
                         : reinterpret_cast<const std::byte*>(&flag);
      },
      [](std::uint32_t) { return std::string_view("no"); });
}

TEST(RemoteMessages, RowsAreReadAsTheyWereWritten) {
  const Bytes message = two_rows();
  const RemoteBatch batch = batch_of(message);
  EXPECT_EQ(batch.queue, 3U);
  EXPECT_EQ(batch.rows, 2U);
  EXPECT_EQ(batch.number, 11U);
  const RowsView view = view_rows(message, kSpec);
  EXPECT_EQ(view.tags[0].env, -7);
  EXPECT_EQ(view.tags[0].flags, RowTag::kReset);
  EXPECT_EQ(view.tags[0].age_ns, 8U);
  EXPECT_EQ(view.tags[0].left_ns, 9U);
  std::int32_t numbers[4];
  std::memcpy(numbers, view.leaves[0], sizeof numbers);
  EXPECT_EQ(numbers[3], 4);
  EXPECT_EQ(std::to_integer<int>(view.leaves[1][1]), 6);
}

TEST(RemoteMessages, RepliesAreReadAsTheyWereWritten) {
  const Bytes message = two_replies();
  const RepliesView view = view_replies(message, kSpec);
  EXPECT_EQ(view.tags[0].version, 4U);
  EXPECT_EQ(view.tags[1].status, ReplyStatus::kModelError);
  EXPECT_EQ(view.texts[0], "");
  EXPECT_EQ(view.texts[1], "no");
  std::int32_t numbers[4];
  std::memcpy(numbers, view.leaves[0], sizeof numbers);
  EXPECT_EQ(numbers[1], 2);
  EXPECT_EQ(numbers[2], 0) << "of a row that failed there is nothing";
}

TEST(RemoteMessages, WhatIsCutShortOrTooLongIsRefused) {
  for (const Bytes& whole : {two_rows(), two_replies()}) {
    const auto view = [&](std::span<const std::byte> message) {
      if (remote_kind_of(message) == RemoteKind::kRows)
        static_cast<void>(view_rows(message, kSpec));
      else
        static_cast<void>(view_replies(message, kSpec));
    };
    EXPECT_NO_THROW(view(whole));
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
      EXPECT_THROW(view(std::span(whole).first(bytes)), Error) << bytes;
    Bytes longer = whole;
    longer.push_back({});
    EXPECT_THROW(view(longer), Error);
  }
}

TEST(RemoteMessages, TermsAreReadAsTheyWereWritten) {
  const Terms terms{.models = {"a", "b"},
                    .max_batch = 64,
                    .max_delay = std::chrono::milliseconds(3),
                    .instances = 2,
                    .restarts = true,
                    .timeout = std::chrono::seconds(4),
                    .most_rows = 32,
                    .most_under_way = 2};
  const Terms read = read_terms(pack_terms(terms));
  EXPECT_EQ(read.models, terms.models);
  EXPECT_EQ(read.max_batch, 64U);
  EXPECT_EQ(read.max_delay, terms.max_delay);
  EXPECT_EQ(read.instances, 2U);
  EXPECT_TRUE(read.restarts);
  EXPECT_EQ(read.timeout, terms.timeout);
  EXPECT_EQ(read.most_rows, 32U);
  EXPECT_THROW(static_cast<void>(read_terms(pack_terms({.models = {}}))), Error);
}

TEST(RemoteMessages, MoreThanAMessageHoldsDoesNotFit) {
  const RowSpec mebibyte{{shm::DType::kU8, {1 << 20}}};
  EXPECT_TRUE(fits_remote(mebibyte, 1000));
  EXPECT_FALSE(fits_remote(mebibyte, 1024));
  EXPECT_FALSE(fits_remote({{shm::DType::kU8, {std::int64_t{1} << 40}}}, 1));
}

TEST(RemoteMessages, APickledStructureDoesNotCross) {
  EXPECT_TRUE(may_cross({}));
  const Bytes text{std::byte{'('}, std::byte{')'}};
  EXPECT_TRUE(may_cross(text));
  const Bytes pickle{std::byte{0x80}, std::byte{4}};
  EXPECT_FALSE(may_cross(pickle));
}

}  // namespace
}  // namespace shoal::serve
