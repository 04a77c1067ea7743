// The arrays of a batch in plain memory, for tests of environments without a vector engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/batch_env.h"

namespace shoal::env {

/// Owns arrays that fit `batch` and attaches them to it.
class BatchArrays {
 public:
  explicit BatchArrays(BatchEnv& batch)
      : count_(batch.count()),
        obs_(storage(batch.observation_space())),
        actions_(storage(batch.action_space())),
        reward(static_cast<std::size_t>(count_)),
        terminated(reward.size()),
        truncated(reward.size()) {
    batch.attach(rows(batch));
  }

  BatchRows rows(const BatchEnv& batch) {
    return {views(batch.observation_space(), obs_), views(batch.action_space(), actions_), reward,
            terminated, truncated};
  }

  /// Row `i` of the first leaf.
  template <class T = float>
  std::span<T> obs(int i, std::size_t size) {
    return {reinterpret_cast<T*>(obs_[0].data()) + static_cast<std::size_t>(i) * size, size};
  }
  template <class T = std::int64_t>
  T& action(int i) {
    return reinterpret_cast<T*>(actions_[0].data())[i];
  }

 private:
  using Storage = std::vector<std::vector<std::byte>>;

  Storage storage(const Space& space) const {
    Storage all;
    for (const Leaf& leaf : leaves(space)) {
      all.emplace_back(leaf.spec.bytes() * static_cast<std::size_t>(count_));
    }
    return all;
  }

  std::vector<shm::TensorView> views(const Space& space, Storage& storage) const {
    std::vector<shm::TensorView> all;
    for (const Leaf& leaf : leaves(space)) {
      all.push_back({storage[all.size()].data(), count_, leaf.spec});
    }
    return all;
  }

  int count_;
  Storage obs_;
  Storage actions_;

 public:
  std::vector<double> reward;
  std::vector<std::uint8_t> terminated;
  std::vector<std::uint8_t> truncated;
};

}  // namespace shoal::env
