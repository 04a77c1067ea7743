// The Python environments of one worker, stepped from C++.
//
// Per environment and step: one vectorcall of `step`, one memcpy of the observation into its row,
// no pickling. What is not per step (spaces, attributes, infos that are not empty) is left to a
// Python object, the *face*, which has
//
//   hello() -> bytes                            Hello::extra
//   request(message: bytes) -> bytes            attributes, calls, rendering
//   take_reset_arguments() -> (dict, list)|None options and seeds of the coming explicit reset
//   take_actions() -> list|None                 of the coming step, where they have no arrays: a
//                                               tuple an environment (object_rows.h), or None
//                                               where it keeps the one before
//   take_whole_actions() -> list|None           of the coming step, in place of the rows: an action
//                                               an environment
//   encode(entries, observed, finals) -> bytes  for info(): infos as (row, is_final, dict), and the
//                                               (row, tuple) of observations and final observations
//                                               without arrays, or None where all have arrays
//   can_rebuild() -> bool                       whether it knows how its environments are made
//   discard(i: int)                             closes environment i, whatever that raises
//   rebuild(i: int) -> environment              a new one in the place of i
//   hand_over() -> bytes, take_over(bytes)      the environments' random generators
//   save(i) -> bytes, load(i, bytes) -> env     snapshots; load() puts a new one in its place
//   episode_options: dict                       statistics, max_episode_steps, frame_stack,
//                                               reward_clip
//   close() -> list                             closes the environments that it has not closed yet,
//                                               all of them; what was raised: (i or None, error)
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/process/error_report.h"
#include "shoal/process/identity/identity.h"
#include "shoal/vector/step/autoreset.h"
#include "shoal/vector/step/episodes.h"
#include "shoal/vector/step/frame_buffer.h"
#include "shoal/vector/step/stepper.h"
#include "vector/copy_plan.h"
#include "vector/object_rows.h"

namespace shoal::python {

/// Steps Gymnasium environments. An exception in an environment's code leaves reset() and step() as
/// nanobind's python_error, with a note that names environment, action and seed; a return value
/// that does not fit leaves as InvalidArgument.
///
/// Threads: one at a time; takes the GIL itself, so the caller may have it or not.
class PyStepper final : public vector::Stepper {
 public:
  /// `envs` is a list of gymnasium environments. Throws SpacesDiffer when their spaces do, which
  /// for observations means dtypes and shapes only where `same_observations` is false, and
  /// InvalidArgument when they cannot be shared; `first_env` is the row of the first one, for the
  /// message. `exact` hands final observations on as the environment returned them (an int stays
  /// one). The environments are those of process::this_worker(), who is told which of them runs.
  PyStepper(nanobind::list envs, nanobind::object face, int first_env,
            bool same_observations = true, bool exact = false);
  ~PyStepper() override;

  PyStepper(const PyStepper&) = delete;
  PyStepper& operator=(const PyStepper&) = delete;

  const vector::Hello& hello() const override { return hello_; }
  int count() const override { return static_cast<int>(envs_.size()); }
  void attach(const vector::Rows& rows, int lo, vector::EnvMarker marker) override;
  void select_obs(int set) override { rows_.select_obs(set); }
  void begin_reset() override;
  void begin_step() override;
  void reset_range(int lo, int hi) override;
  void step_range(int lo, int hi) override;
  bool is_interrupt(const std::exception_ptr& thrown) const override;
  bool can_rebuild() const override;
  void discard(int i) override;
  bool is_gone(int i) const override { return !envs_[static_cast<std::size_t>(i)].env; }
  void rebuild(int i) override;
  std::vector<process::ErrorReport> close() override;
  void hold_resets(bool hold) override { autoreset_.hold(hold); }
  std::vector<std::byte> hand_over() override;
  void take_over(std::span<const std::byte> handed) override;
  std::vector<std::byte> save(int row) override;
  void load(int row, std::span<const std::byte> state) override;
  std::span<const std::byte> info() override;
  std::vector<std::byte> request(std::span<const std::byte> message) override;

  /// To be called after code of the face that may have replaced methods of the environments, or set
  /// actions.
  void face_has_changed();

  /// Lets the environments and the face go. Afterwards only destruction is allowed.
  void release();
  /// What a garbage collector must know: the Python objects that this stepper holds.
  int traverse(visitproc visit, void* arg) const;

  bool has_infos() const noexcept { return !infos_.empty(); }
  /// The infos of the last reset or step as objects, in row order: a list of (row, is_final, dict),
  /// or None. They are the caller's own.
  nanobind::object infos();

  /// What observations, final observations and actions have without arrays; row i is the stepper's
  /// own environment i. For who steps these environments in this process.
  const ObjectRows& observed() const noexcept { return observed_; }
  const ObjectRows& finals() const noexcept { return finals_; }
  ObjectRows& actions() noexcept { return taken_; }
  bool exact() const noexcept { return exact_; }

  /// For an exception that reset() or step() has just thrown (call it inside the catch block): what
  /// failed, where, with which action and seed, and the pickled exception.
  process::ErrorReport describe_exception() const;

 private:
  struct Env {
    nanobind::object env;
    nanobind::object step;  // bound methods, looked up once
    nanobind::object reset;
    std::optional<std::uint64_t> last_seed;
    int steps = 0;  // of its episode
  };
  struct Info {
    int row;
    bool is_final;
    nanobind::object info;
    bool own = false;  // a copy, which no environment's code knows
  };

  void bind_methods();
  nanobind::object action_of(int i) const;
  void step_env(int i);
  void autoreset_env(int i);
  void take_reset_result(int i, nanobind::object result);
  void take_step_result(int i, nanobind::object result);
  void keep_info(int row, bool is_final, PyObject* info, const char* method);
  void own_what_was_kept();
  void store_observation(int row, PyObject* observation, const char* method);
  void keep_final(int row, PyObject* observation);
  void take_episode_options();
  void store_frame(int row, PyObject* observation, const char* method);
  static void bind_methods(Env& env);
  void check_spaces(int first_env, bool same_observations);
  void begin();
  void take_actions();
  void write_flags(int row, double reward, bool terminated, bool truncated);
  void enter(int row, const char* method);
  void leave();
  nanobind::object info_entries() const;
  std::string where(int row, const char* method) const;
  std::string action_text(int row) const;
  template <class Call>
  nanobind::object guarded(int i, const char* method, Call call);

  std::vector<Env> envs_;
  nanobind::object face_;
  vector::Hello hello_;
  CopyPlan observations_;
  CopyPlan actions_;
  ObjectRows observed_;
  ObjectRows finals_;
  ObjectRows taken_;             // the actions
  nanobind::object whole_;       // a list of this step's actions, in place of the rows, or empty
  nanobind::object sent_whole_;  // of the coming step
  bool exact_;
  std::vector<int> changed_;  // rows whose objects were observed since begin()
  int loose_row_ = -1;        // of observed_: the one that is not a copy yet
  vector::Rows rows_;
  int lo_ = 0;
  vector::EnvMarker marker_;
  vector::Autoreset autoreset_;
  env::EpisodeOptions options_;
  vector::Episodes episodes_;
  vector::FrameBuffer frames_;
  nanobind::object reset_names_;    // ("seed", "options")
  nanobind::object reset_options_;  // of the explicit reset under way; may be empty, as the seeds
  nanobind::object reset_seeds_;
  std::vector<Info> infos_;
  nanobind::object encoded_infos_;  // bytes that info() handed out
  process::Identity identity_ = process::this_worker();
  int first_env_ = 0;  // row 0 is this environment, where rows are counted from 0 in each process
  int row_ = -1;       // the environment whose code runs or has failed
  const char* method_ = "";  // what it was asked for
};

}  // namespace shoal::python
