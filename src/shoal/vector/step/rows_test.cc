#include "shoal/vector/step/rows.h"

#include <gtest/gtest.h>

#include <map>

#include "shoal/os/memory/mapping.h"
#include "shoal/shm/layout.h"

namespace shoal::vector {
namespace {

env::Space two_leaves() {
  env::Dict dict;
  dict.spaces.emplace_back("image", env::Box{{shm::DType::kU8, {5, 7}}, {0}, {255}});
  dict.spaces.emplace_back("speed", env::Box{{shm::DType::kF32, {3}}, {-1}, {1}});
  return dict;
}

// Where each array begins and how long it is.
std::map<std::size_t, std::size_t> arrays(const Rows& rows, const std::byte* base) {
  std::map<std::size_t, std::size_t> found;
  const auto add = [&](const void* data, std::size_t bytes) {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) - base);
    EXPECT_TRUE(found.emplace(offset, bytes).second) << "two arrays at " << offset;
  };
  for (const auto* views : {&rows.obs, &rows.final_obs, &rows.actions}) {
    for (const shm::TensorView& view : *views) add(view.data, view.bytes());
  }
  for (const auto span : {rows.terminated, rows.truncated, rows.reset, rows.has_final, rows.fault,
                          rows.has_seed, rows.reset_mask, rows.order}) {
    add(span.data(), span.size_bytes());
  }
  add(rows.reward.data(), rows.reward.size_bytes());
  add(rows.seed.data(), rows.seed.size_bytes());
  return found;
}

class RowsOfMode : public ::testing::TestWithParam<AutoresetMode> {};

TEST_P(RowsOfMode, ArraysAreDisjointOnTheirOwnLinesAndInsideTheSegment) {
  constexpr int kNumEnvs = 13;
  const env::Space action = env::Discrete{.n = 4};
  const std::size_t bytes = Rows::bytes(two_leaves(), action, kNumEnvs, GetParam());
  EXPECT_EQ(bytes % os::page_size(), 0U);
  std::vector<std::byte> memory(bytes + 4096);
  std::byte* base =
      memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096) % 4096;
  const Rows rows = Rows::map(base, two_leaves(), action, kNumEnvs, GetParam());
  std::size_t end = 0;
  for (const auto& [offset, length] : arrays(rows, base)) {
    EXPECT_EQ(offset % shm::kCacheLineBytes, 0U);
    EXPECT_GE(offset, end);
    end = offset + length;
  }
  EXPECT_LE(end, bytes);
  EXPECT_EQ(rows.num_envs, kNumEnvs);
  EXPECT_EQ(rows.obs.size(), 2U);
  EXPECT_EQ(rows.obs[0].bytes(), 13U * 35);
  EXPECT_EQ(rows.final_obs.size(), GetParam() == AutoresetMode::kSameStep ? 2U : 0U);
  EXPECT_EQ(rows.actions[0].row, (shm::TensorSpec{shm::DType::kI64, {}}));
  EXPECT_EQ(rows.reward.size(), 13U);
}

TEST_P(RowsOfMode, TheSameArgumentsGiveTheSameLayout) {
  std::byte* const one = reinterpret_cast<std::byte*>(0x10000);
  std::byte* const other = reinterpret_cast<std::byte*>(0x7f0000000000);
  const env::Space action = env::Discrete{.n = 4};
  EXPECT_EQ(arrays(Rows::map(one, two_leaves(), action, 9, GetParam()), one),
            arrays(Rows::map(other, two_leaves(), action, 9, GetParam()), other));
}

INSTANTIATE_TEST_SUITE_P(Modes, RowsOfMode,
                         ::testing::Values(AutoresetMode::kNextStep, AutoresetMode::kSameStep,
                                           AutoresetMode::kDisabled),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shoal::vector
