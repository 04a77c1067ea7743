#include "shoal/vector/native/native_stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "shoal/env/env_watcher.h"
#include "shoal/env/registry.h"
#include "shoal/process/codec.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/native/engine_request.h"
#include "shoal/vector/step/env_state.h"

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

/// Lets environments know which one of their worker they are.
class IdentityWatcher final : public env::EnvWatcher {
 public:
  explicit IdentityWatcher(process::Identity identity) : identity_(std::move(identity)) {}

  void watch(const std::function<void()>& run) const override {
    const process::IdentityScope scope(identity_);
    run();
  }
  int number(int i) const noexcept override { return identity_.place().first_env + i; }
  void enter(int i) const noexcept override { identity_.enter(number(i)); }
  void set_seed(int i, std::uint64_t seed) const noexcept override {
    identity_.set_seed(number(i), seed);
  }

 private:
  const process::Identity identity_;
};

}  // namespace

NativeStepper::NativeStepper(std::unique_ptr<env::BatchEnv> batch) : batch_(std::move(batch)) {
  hello_.observation_space = batch_->observation_space();
  hello_.action_space = batch_->action_space();
  gone_.resize(static_cast<std::size_t>(batch_->count()));
  last_seeds_.resize(gone_.size());
}

void NativeStepper::attach(const Rows& rows, int lo, EnvMarker marker) {
  const int n = batch_->count();
  rows_ = rows;
  lo_ = lo;
  marker_ = marker;
  autoreset_ = Autoreset(rows.autoreset_mode, n);
  env::EpisodeOptions options = batch_->episode_options();
  options.max_episode_steps = 0;  // the batch's own business
  episodes_ = Episodes(options, rows, lo, n);
  batch_->attach({.obs = rows_from(rows.obs, lo, n),
                  .actions = rows_from(rows.actions, lo, n),
                  .reward = rows_from(rows.reward, lo, n),
                  .terminated = rows_from(rows.terminated, lo, n),
                  .truncated = rows_from(rows.truncated, lo, n)});
}

void NativeStepper::reset_range(int lo, int hi) {
  const env::ResetOptions none;
  for (int i = lo; i < hi; ++i) {
    const auto row = static_cast<std::size_t>(lo_ + i);
    if (rows_.reset_mask[row] == 0) continue;
    marker_.writing(lo_ + i);
    auto& seed = last_seeds_[static_cast<std::size_t>(i)];
    seed = rows_.has_seed[row] != 0 ? std::optional(rows_.seed[row]) : std::nullopt;
    const auto own = own_reset_options_.find(i);
    const bool has_own = own != own_reset_options_.end();
    batch_->reset_with(i, seed, has_own ? own->second : in_step_ ? none : reset_options_);
    if (has_own) own_reset_options_.erase(own);
    episodes_.begin(i);
    autoreset_.was_reset(i);
    rows_.reset[row] = 0;
    rows_.has_final[row] = 0;
  }
  marker_.none();
}

void NativeStepper::step_range(int lo, int hi) {
  const auto n = static_cast<std::size_t>(hi - lo);
  std::memset(&rows_.reset[static_cast<std::size_t>(lo_ + lo)], 0, n);
  std::memset(&rows_.has_final[static_cast<std::size_t>(lo_ + lo)], 0, n);
  for (int begin = lo; begin < hi;) {  // of a run of environments that are stepped
    const int due = autoreset_.next_due(begin, hi);
    step_run(begin, due);
    if (due < hi) reset_row(due);
    begin = due + 1;
  }
}

// Steps [lo, hi), none of which is due for a reset.
void NativeStepper::step_run(int lo, int hi) {
  if (lo >= hi) return;
  if (hi - lo == 1) {
    marker_.writing(lo_ + lo);
  } else {
    marker_.writing_all();
  }
  batch_->step_range(lo, hi);
  episodes_.stepped(lo, hi);
  marker_.none();
  for (int i = next_ended(lo, hi); i < hi; i = next_ended(i + 1, hi)) end_episode(i);
}

/// The first of [lo, hi) whose episode ended in this step; hi when none did.
int NativeStepper::next_ended(int lo, int hi) const noexcept {
  return static_cast<int>(vector::next_ended(rows_, static_cast<std::size_t>(lo_ + lo),
                                             static_cast<std::size_t>(lo_ + hi))) -
         lo_;
}

void NativeStepper::end_episode(int i) {
  const auto row = static_cast<std::size_t>(lo_ + i);
  const std::uint8_t terminated = rows_.terminated[row];
  const std::uint8_t truncated = rows_.truncated[row];
  if (!autoreset_.ended(i, terminated != 0, truncated != 0)) return;
  keep_final_obs(i);
  const double reward = rows_.reward[row];
  reset_row(i);  // sets these three to 0
  rows_.reward[row] = reward;
  rows_.terminated[row] = terminated;
  rows_.truncated[row] = truncated;
}

void NativeStepper::reset_row(int i) {
  marker_.writing(lo_ + i);
  batch_->reset(i, std::nullopt);
  episodes_.begin(i);
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

void NativeStepper::complete(int i, process::ErrorReport& report) const {
  report.last_seed = last_seeds_[static_cast<std::size_t>(i)];
  report.episode_step = batch_->elapsed(i);
}

void NativeStepper::rebuild(int i) {
  discard(i);
  batch_->renew(i);
  gone_[static_cast<std::size_t>(i)] = 0;
}

void NativeStepper::set_reset_options(std::string_view options, std::optional<int> row) {
  auto parsed = env::ResetOptions::from_json(options);
  batch_->check_reset_options(parsed);
  if (row) {
    own_reset_options_.insert_or_assign(*row - lo_, std::move(parsed));
    return;
  }
  reset_options_ = std::move(parsed);
  reset_options_text_ = options;
}

void NativeStepper::check_reset_options(std::string_view options) const {
  batch_->check_reset_options(env::ResetOptions::from_json(options));
}

// All of a state between episodes is its random stream. Environments that cannot be saved hand
// nothing over.
std::vector<std::byte> NativeStepper::hand_over() {
  process::ByteWriter states;
  states.text(reset_options_text_);
  try {
    for (int i = 0; i < count(); ++i) states.bytes(batch_->save(i));
  } catch (const InvalidState&) {
    return {};
  }
  return states.take();
}

void NativeStepper::take_over(std::span<const std::byte> handed) {
  process::ByteReader states(handed);
  set_reset_options(states.text(), {});
  for (int i = 0; i < count(); ++i) batch_->load(i, states.bytes());
  autoreset_.set_all_due();
}

std::vector<std::byte> NativeStepper::save(int row) {
  const EnvState state{rows_, lo_, autoreset_, episodes_};
  return state.save(row - lo_, batch_->save(row - lo_));
}

void NativeStepper::load(int row, std::span<const std::byte> bytes) {
  const EnvState state{rows_, lo_, autoreset_, episodes_};
  state.load(row - lo_, bytes,
             [&](std::span<const std::byte> own) { batch_->load(row - lo_, own); });
}

std::vector<std::byte> NativeStepper::request(std::span<const std::byte> message) {
  if (auto answer = answer_engine_request(*this, message)) return std::move(*answer);
  throw InvalidArgument("request: native environments have no attributes or calls to ask for");
}

std::unique_ptr<env::BatchEnv> make_native_batch(const process::Identity& identity,
                                                 std::string_view id, int count,
                                                 std::string_view env_args) {
  const process::IdentityScope building(identity);
  const env::WatchScope watched(std::make_shared<IdentityWatcher>(identity));
  return env::make_batch(id, count, env_args);
}

std::vector<std::unique_ptr<Stepper>> make_native_steppers(
    std::string_view id, int num_envs, int num_workers, std::string_view env_args,
    std::shared_ptr<process::SharedState> shared_state) {
  if (!shared_state && num_workers > 1)
    shared_state = process::Identity().shared_state();  // else made when needed
  std::vector<std::unique_ptr<Stepper>> steppers;
  int first_env = 0;
  for (int w = 0; w < num_workers; ++w) {
    const int count = envs_of_worker(num_envs, num_workers, w);
    const process::Identity identity(
        {.index = w, .num_workers = num_workers, .first_env = first_env, .num_envs = count},
        shared_state);
    steppers.push_back(
        std::make_unique<NativeStepper>(make_native_batch(identity, id, count, env_args)));
    first_env += count;
  }
  return steppers;
}

}  // namespace shoal::vector
