#include "shoal/learn/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace shoal::learn {
namespace {

using shm::DType;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
SafeTensor tensor(const std::string& name, const std::vector<T>& values,
                  std::vector<std::int64_t> shape) {
  return {name, {shm::dtype_of<T>(), std::move(shape)}, std::as_bytes(std::span(values))};
}

std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string error_of(std::vector<std::byte> bytes) {
  try {
    SafeTensors::parse(std::move(bytes), "some.safetensors");
  } catch (const CorruptFile& error) {
    return error.what();
  }
  return "no error";
}

TEST(SafeTensors, ReadsBackWhatWasWritten) {
  const std::vector<float> weights = {1.5F, -0.0F, 3e38F, 1e-40F, 5, 6};
  const std::vector<std::int64_t> steps = {-7};
  const std::vector<std::uint8_t> flags = {0, 255, 3};
  const auto bytes = serialize_safetensors(
      std::vector{tensor("flags", flags, {3}), tensor("actor.0.weight", weights, {2, 3}),
                  tensor("steps", steps, {})},
      {{"format", "pt"}});
  const auto file = SafeTensors::parse(bytes, "x");
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const auto& view = file.at("actor.0.weight", {DType::kF32, {2, 3}});
  EXPECT_EQ(std::memcmp(view.bytes.data(), weights.data(), 24), 0);
  EXPECT_EQ(file.at("steps").spec, (shm::TensorSpec{DType::kI64, {}}));
  EXPECT_EQ(std::memcmp(file.at("flags").bytes.data(), flags.data(), 3), 0);
}

TEST(SafeTensors, ArraysAreAlignedToTheirElements) {
  const std::vector<std::uint8_t> odd = {1, 2, 3};
  const std::vector<double> wide = {1, 2};
  const auto bytes =
      serialize_safetensors(std::vector{tensor("a", odd, {3}), tensor("b", wide, {2})}, {});
  const auto file = SafeTensors::parse(bytes, "x");
  const auto* begin = file.at("b").bytes.data();
  const auto* end = file.at("a").bytes.data();
  EXPECT_EQ(end - begin, 16);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ((8 + header) % 8, 0U);
}

TEST(SafeTensors, EmptyArraysAndNoArraysAreFiles) {
  const std::vector<float> nothing;
  const auto file = SafeTensors::parse(
      serialize_safetensors(std::vector{tensor("empty", nothing, {0, 4})}, {}), "x");
  EXPECT_EQ(file.at("empty").bytes.size(), 0U);
  EXPECT_TRUE(SafeTensors::parse(serialize_safetensors({}, {}), "x").tensors().empty());
}

TEST(SafeTensors, WriterRefusesWhatCannotBeRead) {
  const std::vector<float> one = {1};
  EXPECT_THROW(serialize_safetensors(std::vector{tensor("a", one, {1}), tensor("a", one, {1})}, {}),
               InvalidArgument);
  EXPECT_THROW(serialize_safetensors(std::vector{tensor("__metadata__", one, {1})}, {}),
               InvalidArgument);
  EXPECT_THROW(serialize_safetensors(std::vector{tensor("a", one, {2})}, {}), InvalidArgument);
}

TEST(SafeTensors, EveryTruncationIsAnError) {
  const std::vector<float> values = {1, 2, 3};
  const auto whole = serialize_safetensors(std::vector{tensor("w", values, {3})}, {});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(SafeTensors::parse({whole.begin(), whole.begin() + static_cast<long>(size)}, "x"),
                 CorruptFile)
        << size;
}

TEST(SafeTensors, NoChangedHeaderByteReadsOutsideTheFile) {
  const std::vector<float> values = {1, 2, 3};
  const auto whole = serialize_safetensors(std::vector{tensor("w", values, {3})}, {});
  int refused = 0;
  for (std::size_t at = 0; at < whole.size() - 12; ++at) {
    for (int value = 0; value < 256; value += 5) {
      auto bytes = whole;
      bytes[at] = static_cast<std::byte>(value);
      try {
        const auto file = SafeTensors::parse(std::move(bytes), "x");
        for (const auto& [name, view] : file.tensors())
          EXPECT_EQ(view.bytes.size(), view.spec.bytes());
      } catch (const CorruptFile&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(SafeTensors, AnErrorSaysWhichFileAndWhatIsWrong) {
  EXPECT_THAT(error_of(file_of("not json", 0)), HasSubstr("some.safetensors"));
  EXPECT_THAT(error_of(file_of("not json", 0)), HasSubstr("not JSON"));
  EXPECT_THAT(error_of(file_of(R"({"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})", 2)),
              HasSubstr("BF16"));
  EXPECT_THAT(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4)),
              HasSubstr("0 to 8 of 4"));
  EXPECT_THAT(error_of(file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4)),
              HasSubstr("its shape needs 8"));
  EXPECT_THAT(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8)),
              HasSubstr("begins at byte 4, not 0"));
  EXPECT_THAT(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8)),
              HasSubstr("end at byte 4 of 8"));
  EXPECT_THAT(
      error_of(file_of(
          R"({"w":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,4]}})", 4)),
      HasSubstr("too large"));
}

TEST(SafeTensors, ANameTwiceIsAnError) {
  EXPECT_THAT(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                               R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                               8)),
              HasSubstr("begins at byte 4"));
}

TEST(SafeTensors, AnArrayOfAnotherKindIsAnError) {
  const std::vector<float> values = {1, 2, 3};
  const auto file =
      SafeTensors::parse(serialize_safetensors(std::vector{tensor("w", values, {3})}, {}), "x");
  EXPECT_THROW(file.at("v"), CorruptFile);
  EXPECT_THROW(file.at("w", {DType::kF32, {4}}), CorruptFile);
  EXPECT_THROW(file.at("w", {DType::kI32, {3}}), CorruptFile);
}

TEST(SafeTensors, AMovedFileKeepsItsArrays) {
  const std::vector<float> values = {1, 2, 3};
  auto first =
      SafeTensors::parse(serialize_safetensors(std::vector{tensor("w", values, {3})}, {}), "x");
  const auto* data = first.at("w").bytes.data();
  const SafeTensors second = std::move(first);
  EXPECT_EQ(second.at("w").bytes.data(), data);
}

}  // namespace
}  // namespace shoal::learn
