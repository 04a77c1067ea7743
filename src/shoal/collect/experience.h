// What happened in some steps of some environments: arrays [steps, envs, …] in one block of the
// family's heap.
//
// Row t tells of the action that was taken in obs(t). The block lives as long as any process,
// message or view holds it, and the heap then uses its memory again: experience is handed on
// without a copy, and nobody has to give it back. The same spec and number of steps give the same
// layout in every process, so that several may write their environments' columns of one block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/ipc/heap/block.h"
#include "shoal/shm/tensor.h"

namespace shoal::collect {

struct ExperienceSpec {
  int envs = 0;
  std::vector<shm::TensorSpec> obs;  // one row of each leaf
  shm::TensorSpec action;            // one row
  bool next_obs = false;             // whether it is kept where each step led, before any reset
  bool log_prob = false;
  bool value = false;
};

/// Threads, processes: as the agreement of those who hold the block says; nothing is locked here.
class Experience {
 public:
  /// Its bytes are not initialised. Throws InvalidArgument for fewer than one step, OutOfMemory.
  static Experience allocate(const ExperienceSpec& spec, int steps);
  /// What another process of the family allocated with this spec and so many steps. Throws
  /// InvalidArgument where the block is smaller than that.
  static Experience attach(const ExperienceSpec& spec, int steps, ipc::Block block);

  int steps() const noexcept { return steps_; }
  int envs() const noexcept { return envs_; }
  const ipc::Block& block() const noexcept { return block_; }

  // Views of all steps: rows are steps, a row is [envs, …].

  const std::vector<shm::TensorView>& obs() const noexcept { return obs_; }
  const std::vector<shm::TensorView>& next_obs() const noexcept { return next_obs_; }  // or empty
  const shm::TensorView& action() const noexcept { return action_; }
  const shm::TensorView& reward() const noexcept { return reward_; }          // float32
  const shm::TensorView& terminated() const noexcept { return terminated_; }  // bool
  const shm::TensorView& truncated() const noexcept { return truncated_; }    // bool
  /// bool: whether the row is a transition. A reset's and a fault's are not.
  const shm::TensorView& valid() const noexcept { return valid_; }
  const shm::TensorView& is_first() const noexcept { return is_first_; }  // bool
  /// float32; without data where the spec asks for none.
  const shm::TensorView& log_prob() const noexcept { return log_prob_; }
  const shm::TensorView& value() const noexcept { return value_; }
  /// int64: number of the environment's episode, counted from 0, times envs, plus the environment.
  const shm::TensorView& episode_id() const noexcept { return episode_id_; }
  const shm::TensorView& env_id() const noexcept { return env_id_; }                  // int64
  const shm::TensorView& policy_version() const noexcept { return policy_version_; }  // int64

  /// Step t of one of the views: [envs, …].
  shm::TensorView at(const shm::TensorView& view, int t) const { return at(view, t, 0, envs_); }
  /// Of it, `count` environments from `first` on.
  shm::TensorView at(const shm::TensorView& view, int t, int first, int count) const;
  /// Its elements; empty where the view has no data.
  template <class T>
  std::span<T> at(const shm::TensorView& view, int t) const noexcept {
    if (view.data == nullptr) return {};
    return {reinterpret_cast<T*>(view.row_data(t)), static_cast<std::size_t>(envs_)};
  }
  template <class T>
  std::span<T> at(const shm::TensorView& view, int t, int first, int count) const noexcept {
    if (view.data == nullptr) return {};
    return at<T>(view, t).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }

  /// All views that have data.
  std::vector<const shm::TensorView*> views() const;

 private:
  Experience() = default;
  static Experience over(const ExperienceSpec& spec, int steps, ipc::Block block);

  int steps_ = 0;
  int envs_ = 0;
  ipc::Block block_;
  std::vector<shm::TensorView> obs_, next_obs_;
  shm::TensorView action_, reward_, terminated_, truncated_, valid_, is_first_, log_prob_, value_,
      episode_id_, env_id_, policy_version_;
};

}  // namespace shoal::collect
