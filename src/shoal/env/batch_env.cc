#include "shoal/env/batch_env.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

void check_arrays(std::string_view what, const Space& space,
                  const std::vector<shm::TensorView>& arrays, int count) {
  const auto expected = leaves(space);
  if (arrays.size() != expected.size()) {
    throw InvalidArgument(fmt::format("BatchEnv::attach: {} {} arrays given, {} has {}",
                                      arrays.size(), what, space.repr(), expected.size()));
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].row != expected[i].spec) {
      throw InvalidArgument(fmt::format("BatchEnv::attach: {} array {} (\"{}\") does not fit {}",
                                        what, i, expected[i].path, expected[i].space.repr()));
    }
    if (arrays[i].rows < count || arrays[i].data == nullptr) {
      throw InvalidArgument(fmt::format("BatchEnv::attach: {} array {} has {} rows, {} are needed",
                                        what, i, arrays[i].data == nullptr ? 0 : arrays[i].rows,
                                        count));
    }
  }
}

}  // namespace

void BatchEnv::attach(BatchRows rows) {
  check_arrays("observation", observation_space(), rows.obs, count());
  check_arrays("action", action_space(), rows.actions, count());
  const auto need = static_cast<std::size_t>(count());
  if (rows.reward.size() < need || rows.terminated.size() < need || rows.truncated.size() < need) {
    throw InvalidArgument(fmt::format(
        "BatchEnv::attach: reward, terminated and truncated have {}, {} and {} rows, {} are needed",
        rows.reward.size(), rows.terminated.size(), rows.truncated.size(), need));
  }
  rows_ = std::move(rows);
  attached();
}

void BatchEnv::reset_with(int i, std::optional<std::uint64_t> seed, const ResetOptions& options) {
  check_reset_options(options);
  reset(i, seed);
}

void BatchEnv::check_reset_options(const ResetOptions& options) const { options.expect_only({}); }

std::vector<std::byte> BatchEnv::save(int /*i*/) const {
  throw InvalidState("this environment does not support snapshots");
}

void BatchEnv::load(int /*i*/, std::span<const std::byte> /*state*/) {
  throw InvalidState("this environment does not support snapshots");
}

void BatchEnv::renew(int /*i*/) {
  throw InvalidState("environments of this kind cannot be replaced one by one");
}

std::vector<double> BatchEnv::state(int /*i*/) const {
  throw InvalidState("this environment does not offer its state");
}

void BatchEnv::set_state(int /*i*/, std::span<const double> /*state*/) {
  throw InvalidState("this environment does not let its state be set");
}

}  // namespace shoal::env
