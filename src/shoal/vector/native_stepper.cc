#include "shoal/vector/native_stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/env/registry.h"
#include "shoal/vector/call_state.h"

namespace shoal::vector {
namespace {

std::vector<shm::TensorView> rows_from(const std::vector<shm::TensorView>& views, int lo, int n) {
  std::vector<shm::TensorView> part = views;
  for (shm::TensorView& view : part) {
    view.data = view.row_data(lo);
    view.rows = n;
  }
  return part;
}

template <class T>
std::span<T> rows_from(std::span<T> all, int lo, int n) {
  return all.subspan(static_cast<std::size_t>(lo), static_cast<std::size_t>(n));
}

}  // namespace

NativeStepper::NativeStepper(std::unique_ptr<env::BatchEnv> batch) : batch_(std::move(batch)) {
  hello_.observation_space = batch_->observation_space();
  hello_.action_space = batch_->action_space();
}

void NativeStepper::attach(const Rows& rows, int lo, EnvMarker marker) {
  const int n = batch_->count();
  rows_ = rows;
  lo_ = lo;
  marker_ = marker;
  autoreset_ = Autoreset(rows.autoreset_mode, n);
  batch_->attach({.obs = rows_from(rows.obs, lo, n),
                  .actions = rows_from(rows.actions, lo, n),
                  .reward = rows_from(rows.reward, lo, n),
                  .terminated = rows_from(rows.terminated, lo, n),
                  .truncated = rows_from(rows.truncated, lo, n)});
}

void NativeStepper::reset() {
  for (int i = 0; i < count(); ++i) {
    const auto row = static_cast<std::size_t>(lo_ + i);
    if (rows_.reset_mask[row] == 0) continue;
    marker_.writing(lo_ + i);
    batch_->reset(i, rows_.has_seed[row] != 0 ? std::optional(rows_.seed[row]) : std::nullopt);
    autoreset_.was_reset(i);
    rows_.reset[row] = 0;
    rows_.has_final[row] = 0;
  }
  marker_.none();
}

void NativeStepper::step() {
  const int n = count();
  std::memset(&rows_.reset[static_cast<std::size_t>(lo_)], 0, static_cast<std::size_t>(n));
  std::memset(&rows_.has_final[static_cast<std::size_t>(lo_)], 0, static_cast<std::size_t>(n));
  int begin = 0;  // of the run of environments that are stepped
  for (int i = 0; i < n; ++i) {
    if (!autoreset_.due(i)) continue;
    step_run(begin, i);
    reset_row(i);
    begin = i + 1;
  }
  step_run(begin, n);
}

// Steps [lo, hi), none of which is due for a reset.
void NativeStepper::step_run(int lo, int hi) {
  if (lo >= hi) return;
  marker_.writing_all();
  batch_->step_range(lo, hi);
  marker_.none();
  for (int i = lo; i < hi; ++i) {
    const auto row = static_cast<std::size_t>(lo_ + i);
    if ((rows_.terminated[row] | rows_.truncated[row]) == 0) continue;
    if (!autoreset_.ended(i, rows_.terminated[row] != 0, rows_.truncated[row] != 0)) continue;
    keep_final_obs(i);
    const double reward = rows_.reward[row];
    const std::uint8_t terminated = rows_.terminated[row];
    const std::uint8_t truncated = rows_.truncated[row];
    reset_row(i);  // sets these three to 0
    rows_.reward[row] = reward;
    rows_.terminated[row] = terminated;
    rows_.truncated[row] = truncated;
  }
}

void NativeStepper::reset_row(int i) {
  marker_.writing(lo_ + i);
  batch_->reset(i, std::nullopt);
  autoreset_.was_reset(i);
  rows_.reset[static_cast<std::size_t>(lo_ + i)] = 1;
  marker_.none();
}

void NativeStepper::keep_final_obs(int i) {
  for (std::size_t leaf = 0; leaf < rows_.obs.size(); ++leaf) {
    std::memcpy(rows_.final_obs[leaf].row_data(lo_ + i), rows_.obs[leaf].row_data(lo_ + i),
                rows_.obs[leaf].row_bytes());
  }
  rows_.has_final[static_cast<std::size_t>(lo_ + i)] = 1;
}

std::vector<std::byte> NativeStepper::request(std::span<const std::byte>) {
  throw InvalidArgument("request: native environments have no attributes or calls to ask for");
}

std::vector<std::unique_ptr<Stepper>> make_native_steppers(std::string_view id, int num_envs,
                                                           int num_workers,
                                                           std::string_view env_args) {
  std::vector<std::unique_ptr<Stepper>> steppers;
  for (int w = 0; w < num_workers; ++w) {
    steppers.push_back(std::make_unique<NativeStepper>(
        env::make_batch(id, envs_of_worker(num_envs, num_workers, w), env_args)));
  }
  return steppers;
}

}  // namespace shoal::vector
