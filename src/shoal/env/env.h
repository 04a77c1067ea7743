// One environment, for those who write one in C++ with as little ceremony as possible.
//
//   struct Coin : shoal::env::Env {
//     Coin() : Env(Box{{DType::kF32, {1}}, {0}, {1}}, Discrete{2}) {}
//     void reset(const Row& obs) override {
//       side_ = np_random().integers(0, 2);
//       obs.as<float>()[0] = 0;
//     }
//     Outcome step(const Row& action, const Row& obs) override {
//       const bool guessed = action.as<std::int64_t>()[0] == side_;
//       obs.as<float>()[0] = static_cast<float>(side_);
//       return {.reward = guessed ? 1.0 : 0.0, .terminated = true};
//     }
//     std::int64_t side_ = 0;
//   };
//   SHOAL_REGISTER_ENV("mine/Coin-v0", Coin);        // shoal/env/register_env.h
//
// It costs one virtual call a step. An environment whose step is shorter than that is written as a
// plain struct and wrapped by BatchOf (batch_env.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "shoal/env/np_random.h"
#include "shoal/env/reset_options.h"
#include "shoal/env/space.h"
#include "shoal/shm/tensor.h"

namespace shoal::env {

/// What a step gives besides the observation.
struct Outcome {
  double reward = 0;
  bool terminated = false;
  bool truncated = false;
};

/// One environment's row of arrays that the caller owns: one array per leaf of a space. Borrowed
/// for one call.
class Row {
 public:
  Row(std::span<const shm::TensorView> arrays, std::int64_t index)
      : arrays_(arrays), index_(index) {}

  /// The elements of leaf `leaf` (see leaves()). Throws InvalidArgument when there is none, or T is
  /// not its element type.
  template <class T>
  std::span<T> as(std::size_t leaf = 0) const {
    if (leaf >= arrays_.size()) throw_no_leaf(leaf);
    const auto n = static_cast<std::size_t>(arrays_[leaf].row.numel());
    return arrays_[leaf].template as<T>().subspan(static_cast<std::size_t>(index_) * n, n);
  }

 private:
  [[noreturn]] void throw_no_leaf(std::size_t leaf) const;

  std::span<const shm::TensorView> arrays_;
  std::int64_t index_;
};

/// Threads: one at a time. Time limits and automatic resets are not the environment's business.
class Env {
 public:
  virtual ~Env() = default;
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

  const Space& observation_space() const noexcept { return observation_space_; }
  const Space& action_space() const noexcept { return action_space_; }

  /// The environment's only source of chance. The engine seeds it before a reset with a seed.
  NpRandom& np_random() noexcept { return np_random_; }

  /// Begins an episode and writes its first observation.
  virtual void reset(const Row& obs) = 0;

  /// The same with options. The default refuses all but none.
  virtual void reset_with(const Row& obs, const ResetOptions& options) {
    check_reset_options(options);
    reset(obs);
  }
  /// Throws InvalidArgument for options that a reset does not take. The default takes none.
  virtual void check_reset_options(const ResetOptions& options) const { options.expect_only({}); }

  /// All that decides how the environment goes on, but its np_random(), which the engine keeps: for
  /// snapshots. The default throws InvalidState: override both, or neither.
  virtual std::vector<std::byte> save() const;
  /// Becomes what save() gave, maybe of another object of this class. Throws InvalidArgument for
  /// bytes that are not of save().
  virtual void load(std::span<const std::byte> state);

  /// Takes one action and writes the observation that follows it.
  virtual Outcome step(const Row& action, const Row& obs) = 0;

 protected:
  Env(Space observation_space, Space action_space)
      : observation_space_(std::move(observation_space)), action_space_(std::move(action_space)) {}

 private:
  Space observation_space_;
  Space action_space_;
  NpRandom np_random_;
};

}  // namespace shoal::env
