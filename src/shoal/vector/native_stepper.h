// A Stepper over native environments.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/env/batch_env.h"
#include "shoal/vector/autoreset.h"
#include "shoal/vector/stepper.h"

namespace shoal::vector {

/// Steps a BatchEnv in as few calls as possible: one for the whole range unless some environment is
/// due for a reset. Nothing is allocated after attach().
///
/// It has no requests: request() throws InvalidArgument.
class NativeStepper final : public Stepper {
 public:
  explicit NativeStepper(std::unique_ptr<env::BatchEnv> batch);

  const Hello& hello() const override { return hello_; }
  int count() const override { return batch_->count(); }
  void attach(const Rows& rows, int lo, EnvMarker marker) override;
  void reset() override;
  void step() override;
  std::vector<std::byte> request(std::span<const std::byte> message) override;

  env::BatchEnv& batch() noexcept { return *batch_; }

 private:
  void step_run(int lo, int hi);
  void reset_row(int i);
  void keep_final_obs(int i);

  std::unique_ptr<env::BatchEnv> batch_;
  Hello hello_;
  Rows rows_;  // the whole batch's
  int lo_ = 0;
  EnvMarker marker_;
  Autoreset autoreset_;
};

/// Steppers for environments [0, num_envs) of `id`, divided among `num_workers` as evenly as
/// possible: the earlier ones have one more. Throws what env::make_batch() throws.
std::vector<std::unique_ptr<Stepper>> make_native_steppers(std::string_view id, int num_envs,
                                                           int num_workers,
                                                           std::string_view env_args);

}  // namespace shoal::vector
