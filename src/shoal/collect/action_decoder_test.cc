#include "shoal/collect/action_decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

using shm::DType;

template <class T>
shm::TensorView view(std::vector<T>& values, std::vector<std::int64_t> row) {
  const shm::TensorSpec spec{shm::dtype_of<T>(), std::move(row)};
  return {reinterpret_cast<std::byte*>(values.data()),
          static_cast<std::int64_t>(values.size()) / spec.numel(), spec};
}

TEST(ActionDecoder, DiscreteActionsAreShiftedByTheirStart) {
  const ActionDecoder decoder(env::Space{env::Discrete{.n = 3, .start = -1, .dtype = DType::kI64}});
  EXPECT_EQ(decoder.categories(), std::vector<std::int64_t>{3});
  std::vector<std::int32_t> chosen{0, 1, 2};
  std::vector<std::int64_t> sent(3);
  decoder.decode(view(chosen, {1}), view(sent, {}));
  EXPECT_EQ(sent, (std::vector<std::int64_t>{-1, 0, 1}));
}

TEST(ActionDecoder, MultiDiscreteActionsKeepTheirElementType) {
  const ActionDecoder decoder(env::Space{
      env::MultiDiscrete{.nvec = {3, 2}, .start = {10, 0}, .shape = {2}, .dtype = DType::kI32}});
  std::vector<std::int32_t> chosen{2, 1, 0, 0};
  std::vector<std::int32_t> sent(4);
  decoder.decode(view(chosen, {2}), view(sent, {2}));
  EXPECT_EQ(sent, (std::vector<std::int32_t>{12, 1, 10, 0}));
}

TEST(ActionDecoder, MultiBinaryActionsAreBits) {
  const ActionDecoder decoder(env::Space{env::MultiBinary{{2, 2}}});
  EXPECT_EQ(decoder.categories(), (std::vector<std::int64_t>{2, 2, 2, 2}));
  std::vector<std::int32_t> chosen{0, 1, 1, 0};
  std::vector<std::int8_t> sent(4);
  decoder.decode(view(chosen, {4}), view(sent, {2, 2}));
  EXPECT_EQ(sent, (std::vector<std::int8_t>{0, 1, 1, 0}));
}

TEST(ActionDecoder, BoxActionsAreClippedToTheirBounds) {
  const ActionDecoder decoder(env::Space{env::Box{{DType::kF64, {2}}, {-2, 0}, {2, 0.5}}});
  EXPECT_TRUE(decoder.is_continuous());
  std::vector<float> chosen{-3, -3, 1.25F, 0.25F, 9, 9};
  std::vector<double> sent(6);
  decoder.decode(view(chosen, {2}), view(sent, {2}));
  EXPECT_EQ(sent, (std::vector<double>{-2, 0, 1.25, 0.25, 2, 0.5}));
}

TEST(ActionDecoder, ABoxOfIntegersGetsTheNearest) {
  const ActionDecoder decoder(env::Space{env::Box{{DType::kI64, {1}}, {-2}, {2}}});
  std::vector<float> chosen{-9, -1.6F, -0.6F, -0.4F, 0.4F, 0.6F, 1.4F, 1.6F, 9, NAN};
  std::vector<std::int64_t> sent(chosen.size());
  decoder.decode(view(chosen, {1}), view(sent, {1}));
  EXPECT_EQ(sent, (std::vector<std::int64_t>{-2, -2, -1, 0, 0, 1, 1, 2, 2, -2}));
}

TEST(ActionDecoder, OneBoundHoldsForAllElements) {
  const ActionDecoder decoder(env::Space{env::Box{{DType::kF32, {3}}, {-1}, {1}}});
  std::vector<float> chosen{-3, 0, 3};
  std::vector<float> sent(3);
  decoder.decode(view(chosen, {3}), view(sent, {3}));
  EXPECT_EQ(sent, (std::vector<float>{-1, 0, 1}));
}

TEST(ActionDecoder, DictActionsAreRefusedWithWhatIsPossible) {
  env::Dict dict;
  dict.spaces.emplace_back("arm", env::Space{env::Discrete{.n = 2}});
  try {
    ActionDecoder decoder{env::Space{dict}};
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("MultiDiscrete"), std::string::npos);
  }
}

}  // namespace
}  // namespace shoal::collect
