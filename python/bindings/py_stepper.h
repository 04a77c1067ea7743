// The Python environments of one worker, stepped from C++.
//
// Per environment and step: one vectorcall of `step`, one memcpy of the observation into its row,
// no pickling. What is not per step (spaces, attributes, infos that are not empty) is left to a
// Python object, the *face*, which has
//
//   hello() -> bytes                            Hello::extra
//   request(message: bytes) -> bytes            attributes, calls, rendering
//   take_reset_arguments() -> (dict, list)|None options and seeds of the coming explicit reset
//   encode_infos(entries: list) -> bytes        for info(); entries are (row, is_final, dict)
//   close()                                     closes the environments
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copy_plan.h"
#include "shoal/process/error_report.h"
#include "shoal/vector/autoreset.h"
#include "shoal/vector/stepper.h"

namespace shoal::python {

/// Steps Gymnasium environments. An exception in an environment's code leaves reset() and step() as
/// nanobind's python_error, with a note that names environment, action and seed; a return value
/// that does not fit leaves as InvalidArgument.
///
/// Threads: one at a time; takes the GIL itself, so the caller may have it or not.
class PyStepper final : public vector::Stepper {
 public:
  /// `envs` is a list of gymnasium environments. Throws InvalidArgument when their spaces differ or
  /// cannot be shared; `first_env` is the row of the first one, for the message.
  PyStepper(nanobind::list envs, nanobind::object face, int first_env);
  ~PyStepper() override;

  PyStepper(const PyStepper&) = delete;
  PyStepper& operator=(const PyStepper&) = delete;

  const vector::Hello& hello() const override { return hello_; }
  int count() const override { return static_cast<int>(envs_.size()); }
  void attach(const vector::Rows& rows, int lo, vector::EnvMarker marker) override;
  void reset() override;
  void step() override;
  std::span<const std::byte> info() override;
  std::vector<std::byte> request(std::span<const std::byte> message) override;

  /// Looks the environments' methods up again; to be called after code that may have replaced them.
  void bind_methods();

  /// Lets the environments and the face go. Afterwards only destruction is allowed.
  void release();
  /// What a garbage collector must know: the Python objects that this stepper holds.
  int traverse(visitproc visit, void* arg) const;

  bool has_infos() const noexcept { return !infos_.empty(); }
  /// The infos of the last reset or step as objects, in row order: a list of (row, is_final, dict),
  /// or None.
  nanobind::object infos() const;

  /// For an exception that reset() or step() has just thrown (call it inside the catch block): what
  /// failed, where, with which action and seed, and the pickled exception.
  process::ErrorReport describe_exception() const;

 private:
  struct Env {
    nanobind::object env;
    nanobind::object step;  // bound methods, looked up once
    nanobind::object reset;
    std::optional<std::uint64_t> last_seed;
  };
  struct Info {
    int row;
    bool is_final;
    nanobind::object info;
  };

  void step_env(int i);
  void autoreset_env(int i);
  void take_reset_result(int i, nanobind::object result);
  void take_step_result(int i, nanobind::object result);
  void keep_info(int row, bool is_final, PyObject* info, const char* method);
  void store_observation(int row, PyObject* observation, const char* method);
  void keep_final(int row);
  void write_flags(int row, double reward, bool terminated, bool truncated);
  void enter(int row, const char* method);
  void leave();
  std::string where(int row, const char* method) const;
  std::string action_text(int row) const;
  template <class Call>
  nanobind::object guarded(int i, const char* method, Call call);

  std::vector<Env> envs_;
  nanobind::object face_;
  vector::Hello hello_;
  CopyPlan observations_;
  CopyPlan actions_;
  vector::Rows rows_;
  int lo_ = 0;
  vector::EnvMarker marker_;
  vector::Autoreset autoreset_;
  nanobind::object reset_names_;  // ("seed", "options")
  std::vector<Info> infos_;
  nanobind::object encoded_infos_;  // bytes that info() handed out
  int row_ = -1;                    // the environment whose code runs or has failed
  const char* method_ = "";         // what it was asked for
};

}  // namespace shoal::python
