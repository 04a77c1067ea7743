// A Stepper over native environments.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/env/batch_env.h"
#include "shoal/process/identity/identity.h"
#include "shoal/vector/step/autoreset.h"
#include "shoal/vector/step/episodes.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

/// Steps a BatchEnv in as few calls as possible: one for a whole range unless some environment is
/// due for a reset. What throws in a range of one is blamed on that environment, in a longer one on nobody. Nothing is allocated after attach(). Divisible: ranges that several threads
/// step touch different rows only.
///
/// Does what the batch's episode_options() say. It knows the requests of engine_request.h and no
/// others: request() throws InvalidArgument.
/// Threads, processes, death: as Stepper.
class NativeStepper final : public Stepper {
 public:
  explicit NativeStepper(std::unique_ptr<env::BatchEnv> batch);

  const Hello& hello() const override { return hello_; }
  int count() const override { return batch_->count(); }
  void attach(const Rows& rows, int lo, EnvMarker marker) override;
  bool divisible() const override { return true; }
  void begin_reset() override { in_step_ = false; }
  void begin_step() override { in_step_ = true; }
  void reset_range(int lo, int hi) override;
  void step_range(int lo, int hi) override;
  bool can_rebuild() const override { return batch_->can_renew(); }
  void discard(int i) override { gone_[static_cast<std::size_t>(i)] = 1; }
  bool is_gone(int i) const override { return gone_[static_cast<std::size_t>(i)] != 0; }
  void complete(int i, process::ErrorReport& report) const override;
  void rebuild(int i) override;
  void hold_resets(bool hold) override { autoreset_.hold(hold); }
  std::vector<std::byte> hand_over() override;
  void take_over(std::span<const std::byte> handed) override;
  void set_reset_options(std::string_view options, std::optional<int> row) override;
  void check_reset_options(std::string_view options) const override;
  std::vector<std::byte> save(int row) override;
  void load(int row, std::span<const std::byte> state) override;
  std::vector<std::byte> request(std::span<const std::byte> message) override;

  env::BatchEnv& batch() noexcept { return *batch_; }

 private:
  void step_run(int lo, int hi);
  int next_ended(int lo, int hi) const noexcept;
  void end_episode(int i);
  void reset_row(int i);
  void keep_final_obs(int i);

  std::unique_ptr<env::BatchEnv> batch_;
  Hello hello_;
  Rows rows_;  // the whole batch's
  int lo_ = 0;
  EnvMarker marker_;
  Autoreset autoreset_;
  Episodes episodes_;
  std::vector<std::uint8_t> gone_;                        // whether each was discarded
  std::vector<std::optional<std::uint64_t>> last_seeds_;  // of explicit resets
  env::ResetOptions reset_options_;                       // likewise
  std::string reset_options_text_;                        // the same, as given
  std::map<int, env::ResetOptions> own_reset_options_;    // of the next one of an environment
  bool in_step_ = false;  // what is reset there begins in the place of a lost one: nobody asked
};

/// As env::make_batch(), for the worker `identity`.
std::unique_ptr<env::BatchEnv> make_native_batch(const process::Identity& identity,
                                                 std::string_view id, int count,
                                                 std::string_view env_args);

/// Steppers for environments [0, num_envs) of `id`, divided among `num_workers` as evenly as
/// possible: the earlier ones have one more. The workers share `shared_state` (nullptr: one of their
/// own).
/// Throws what env::make_batch() throws.
std::vector<std::unique_ptr<Stepper>> make_native_steppers(
    std::string_view id, int num_envs, int num_workers, std::string_view env_args,
    std::shared_ptr<process::SharedState> shared_state = {});

}  // namespace shoal::vector
