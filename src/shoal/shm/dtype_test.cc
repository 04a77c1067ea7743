#include "shoal/shm/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/os/error.h"
#include "shoal/shm/tensor.h"

namespace shoal::shm {
namespace {

constexpr DType kAll[] = {DType::kBool, DType::kU8,  DType::kI8,  DType::kU16,
                          DType::kI16,  DType::kU32, DType::kI32, DType::kU64,
                          DType::kI64,  DType::kF16, DType::kF32, DType::kF64};

TEST(DType, EveryNameComesBackAsItsType) {
  for (const DType dtype : kAll) EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
}

TEST(DType, NamesAreNumPysAndSayTheSize) {
  EXPECT_EQ(name(DType::kBool), "bool");
  for (const DType dtype : kAll) {
    if (dtype == DType::kBool) continue;
    const std::string text(name(dtype));
    const int bits = std::stoi(text.substr(text.find_first_of("0123456789")));
    EXPECT_EQ(itemsize(dtype) * 8, static_cast<std::size_t>(bits)) << text;
  }
}

TEST(DType, AnUnknownNameThrowsAndListsTheKnownOnes) {
  try {
    dtype_from_name("complex64");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("\"complex64\""),
                                               ::testing::HasSubstr("float16, float32")));
  }
}

TEST(DType, OfACppTypeHasItsSize) {
  EXPECT_EQ(itemsize(dtype_of<bool>()), sizeof(bool));
  EXPECT_EQ(itemsize(dtype_of<float>()), sizeof(float));
  EXPECT_EQ(itemsize(dtype_of<std::int64_t>()), sizeof(std::int64_t));
}

TEST(TensorSpec, CountsElementsAndBytes) {
  EXPECT_EQ((TensorSpec{DType::kF32, {}}.numel()), 1);
  EXPECT_EQ((TensorSpec{DType::kF32, {3, 4}}.bytes()), 48u);
  EXPECT_EQ((TensorSpec{DType::kU8, {84, 0, 4}}.bytes()), 0u);
}

TEST(TensorView, GivesRowsAndTypedElements) {
  float values[6] = {0, 1, 2, 3, 4, 5};
  const TensorView view{reinterpret_cast<std::byte*>(values), 2, {DType::kF32, {3}}};
  EXPECT_EQ(view.bytes(), sizeof values);
  EXPECT_EQ(*reinterpret_cast<float*>(view.row_data(1)), 3.0f);
  EXPECT_EQ(view.as<float>().size(), 6u);
  EXPECT_THROW(view.as<double>(), InvalidArgument);
}

}  // namespace
}  // namespace shoal::shm
