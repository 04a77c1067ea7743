// What crosses between Python and a VectorEnv on every call: actions in; observations, rewards and
// flags out.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shoal/vector/vector_env.h"
#include "vector/copy_plan.h"
#include "vector/py_stepper.h"
#include "vector/readiness.h"
#include "vector/waited_call.h"

namespace shoal::python {

/// The stepper of a serial VectorEnv over Python environments; nullptr for every other, and after
/// close().
PyStepper* local_stepper(vector::VectorEnv& envs);

/// Whether one of these zeros and ones is 1; whether one of these values is not 0.
bool any_flag(std::span<const std::uint8_t> flags);
bool any_not_zero(std::span<const std::uint8_t> values);

/// Of the episodes that ended in `batch`: returns, lengths, seconds, and the mask of their rows.
nanobind::object episodes_of(const vector::Batch& batch);

/// The face of one VectorEnv: batches as NumPy objects, waiting with the GIL released.
///
/// Threads: one at a time, with the GIL.
class BatchIo {
 public:
  /// What a result carries beyond its arrays; zero for most steps.
  enum Extra : int { kNothing = 0, kInfos = 1, kFinal = 2, kFault = 4, kEpisodes = 8 };
  /// A reset ends no episode: rows that it leaves alone are as the step before left them, and what
  /// they say of an episode's end was told with that step.
  static constexpr int kOfResets = kInfos | kFault;

  /// The spaces are Gymnasium's single ones. `copy`: results are fresh arrays; otherwise they are
  /// views of the VectorEnv's own arrays, overwritten by the next call. `exact`: what the steppers
  /// were given (py_stepper.h). `episode_statistics`: they keep them.
  BatchIo(std::shared_ptr<vector::VectorEnv> envs, nanobind::handle observation_space,
          nanobind::handle action_space, bool copy, bool exact, bool episode_statistics);

  /// `seeds`: None or one int or None an environment, below 2**64; `mask`: None or a uint8 array,
  /// one an environment.
  void reset_async(nanobind::handle seeds, nanobind::handle mask);
  void step_async(nanobind::handle actions);
  /// Whether actions have parts without arrays that must be sent to other processes. A step is then
  /// store_actions(), sending what it returns (a tuple an environment), and step_stored().
  bool sends_actions() const noexcept { return actions_.objects() != 0 && !is_local_; }
  nanobind::object store_actions(nanobind::handle actions);
  /// A batch of `count` actions, taken apart: copies, with the types that the environments get, but for
  /// what has no arrays, which is as it came.
  nanobind::list samples_of(nanobind::handle actions, int count) const;
  /// Whether the environments would get these actions with the types that they have here.
  bool fits(nanobind::handle actions) const {
    return actions_.fits_batch(actions.ptr(), envs_->num_envs());
  }
  void step_stored();
  /// The reset or step that was begun last.
  const WaitedCall& call() const noexcept { return call_; }

  /// (observations, Extra) of the reset under way. Throws TimedOut after `timeout` seconds; it then
  /// is still under way.
  nanobind::object reset_wait(std::optional<double> timeout);
  /// (observations, rewards, terminations, truncations, Extra) of the step under way.
  nanobind::object step_wait(std::optional<double> timeout);

  /// What the last reset or step said beyond its arrays: a list of (row, is_final, dict).
  nanobind::object infos() const;
  /// Row `row`'s last observation of the episode that this step ended (same-step autoreset), an own
  /// copy.
  nanobind::object final_observation(int row) const;
  /// To be called after a change of environments that live in this process.
  void environments_changed() {
    if (PyStepper* stepper = local()) stepper->face_has_changed();
  }
  Readiness& readiness() noexcept { return readiness_; }
  vector::VectorEnv& envs() noexcept { return *envs_; }
  /// What a garbage collector must know.
  int traverse(visitproc visit, void* arg) const;

  /// The environments whose Extra this is: a bool array.
  nanobind::object has_final() const { return flags(last_.has_final); }
  /// Of every row its vector::RowFault, as uint8.
  nanobind::object fault() const;

  /// Of the episodes that this step ended: (returns, lengths, seconds, mask), zeros elsewhere.
  nanobind::object episodes() const;

 private:
  PyStepper* local() const { return is_local_ ? local_stepper(*envs_) : nullptr; }
  vector::Batch wait(std::optional<double> timeout);
  void store(nanobind::handle actions);
  nanobind::list messages() const;
  void take_objects();
  const ObjectRows* observed() const;
  int extra() const;
  nanobind::object observations();
  static nanobind::object flags(std::span<const std::uint8_t> values);

  std::shared_ptr<vector::VectorEnv> envs_;
  bool is_local_;  // a serial VectorEnv over Python environments
  CopyPlan observations_;
  CopyPlan actions_;
  ObjectRows observed_;  // beside last_, where the environments are in other processes
  ObjectRows finals_;
  ObjectRows sent_;
  nanobind::list entries_;  // infos that came with objects
  vector::Batch last_;
  WaitedCall call_;
  bool is_large_;  // what a batch copies is worth a span
  bool copy_;
  bool exact_;
  bool episode_statistics_;
  nanobind::object live_views_;  // where nothing is copied: made once
  Readiness readiness_;
};

}  // namespace shoal::python
