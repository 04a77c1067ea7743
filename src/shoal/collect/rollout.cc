#include "shoal/collect/rollout.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace shoal::collect {

Rollout::Rollout(int steps, int envs, const std::vector<shm::TensorSpec>& obs,
                 const shm::TensorSpec& action)
    : steps_(steps), envs_(envs), action_spec_(action) {
  const auto rows = static_cast<std::size_t>(steps) * static_cast<std::size_t>(envs);
  const auto one = static_cast<std::size_t>(envs);
  obs_at_.resize(static_cast<std::size_t>(steps) + 1);
  for (const auto& spec : obs) {
    auto& bytes = obs_bytes_.emplace_back((rows + one) * spec.bytes());
    obs_all_.push_back({bytes.data(), static_cast<std::int64_t>(rows), spec});
    for (std::size_t t = 0; t < obs_at_.size(); ++t) {
      obs_at_[t].push_back({bytes.data() + t * one * spec.bytes(), envs, spec});
    }
  }
  action_bytes_.resize(rows * action.bytes());
  for (auto* array : {&reward_, &value_, &next_value_, &logp_}) array->resize(rows);
  for (auto* array : {&terminated_, &truncated_, &valid_}) array->resize(rows);
}

shm::TensorView Rollout::action(int t) const noexcept {
  return {action_bytes_.data() +
              static_cast<std::size_t>(t) * static_cast<std::size_t>(envs_) * action_spec_.bytes(),
          envs_, action_spec_};
}

shm::TensorView Rollout::action() const noexcept {
  return {action_bytes_.data(), static_cast<std::int64_t>(reward_.size()), action_spec_};
}

void Rollout::carry_over() noexcept {
  const auto& last = obs_at_.back();
  for (std::size_t leaf = 0; leaf < last.size(); ++leaf) {
    std::memcpy(obs_at_.front()[leaf].data, last[leaf].data, last[leaf].bytes());
  }
}

void Rollout::end_at(int t) noexcept {
  const auto& end = obs_at_[static_cast<std::size_t>(t)];
  for (std::size_t leaf = 0; leaf < end.size(); ++leaf)
    std::memcpy(obs_at_.back()[leaf].data, end[leaf].data, end[leaf].bytes());
  const auto rest = static_cast<std::ptrdiff_t>(t) * envs_;
  for (auto* array : {&reward_, &value_, &next_value_, &logp_})
    std::fill(array->begin() + rest, array->end(), 0.0F);
  for (auto* array : {&terminated_, &truncated_, &valid_})
    std::fill(array->begin() + rest, array->end(), std::uint8_t{0});
}

std::vector<std::int32_t> Rollout::valid_rows() const {
  std::vector<std::int32_t> rows;
  rows.reserve(valid_.size());
  for (std::size_t i = 0; i < valid_.size(); ++i) {
    if (valid_[i] != 0) rows.push_back(static_cast<std::int32_t>(i));
  }
  return rows;
}

void Rollout::link_values(std::span<const float> last) noexcept {
  for (int t = 0; t < steps_; ++t) {
    const std::span<const float> after = t + 1 < steps_ ? value(t + 1) : last;
    for (std::size_t i = 0; i < static_cast<std::size_t>(envs_); ++i) {
      const bool known = ends_are_replaced_ && (terminated(t)[i] | truncated(t)[i]) != 0;
      if (!known) next_value(t)[i] = after[i];
    }
  }
}

}  // namespace shoal::collect
