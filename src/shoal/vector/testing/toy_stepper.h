// Small deterministic environments for the tests of the vector layer, with a failure for every
// occasion.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/process/entry.h"
#include "shoal/process/launcher.h"
#include "shoal/vector/step/autoreset.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector::testing {

/// Actions that do something else than act. All others are part of the trajectory.
struct ToyAction {
  static constexpr std::int64_t kThrow = 900;        // std::runtime_error
  static constexpr std::int64_t kExit = 901;         // _exit(3), after a last line to stderr
  static constexpr std::int64_t kKill = 902;         // SIGKILL itself, the row whole
  static constexpr std::int64_t kKillWriting = 903;  // SIGKILL itself, the row half written
  static constexpr std::int64_t kHang = 904;         // never returns
  static constexpr std::int64_t kLargeInfo = 905;    // an info of 300,000 bytes
  static constexpr std::int64_t kSmallInfo = 906;    // an info that names the row
};

/// Observation Dict(state: Box float64 (3,), tick: Discrete), action Discrete: each observation,
/// reward and episode end is a function of the seed, the episode, the step and the actions of that
/// environment alone.
///
/// Requests: "echo …" answers the rest; "pid" and "cpus" answer the process id and the CPUs that
/// the worker may use; "stop" stops its process until somebody continues it; "kill" and "hang" as
/// the actions; "close badly" lets each environment fail when it is closed, "never close" lets that
/// take for ever; all others fail.
class ToyStepper final : public Stepper {
 public:
  /// `divisible`: neighbours may be stepped by one call; what one of them says is then said of all, and none can be replaced.
  explicit ToyStepper(int count, int num_actions = 1000, bool divisible = false);

  const Hello& hello() const override { return hello_; }
  int count() const override { return static_cast<int>(envs_.size()); }
  void attach(const Rows& rows, int lo, EnvMarker marker) override;
  void begin_reset() override { info_.clear(); }
  void begin_step() override { info_.clear(); }
  void reset_range(int lo, int hi) override;
  void step_range(int lo, int hi) override;
  bool divisible() const override { return divisible_; }
  bool can_rebuild() const override { return !divisible_; }
  void discard(int i) override { envs_[static_cast<std::size_t>(i)].gone = true; }
  bool is_gone(int i) const override { return envs_[static_cast<std::size_t>(i)].gone; }
  void rebuild(int i) override;
  void hold_resets(bool hold) override { autoreset_.hold(hold); }
  std::vector<std::byte> hand_over() override;
  void take_over(std::span<const std::byte> handed) override;
  std::span<const std::byte> info() override { return info_; }
  std::vector<std::byte> request(std::span<const std::byte> message) override;
  std::vector<process::ErrorReport> close() override;

 private:
  struct Toy {
    std::uint64_t random = 0;
    std::int64_t episode = 0;
    std::int64_t tick = 0;
    std::int64_t length = 0;
    bool gone = false;
  };

  void begin_episode(int i);
  void step_toy(int i);
  void misbehave(int row, std::int64_t action);
  void write_obs(int i);

  Hello hello_;
  bool divisible_;
  std::vector<Toy> envs_;
  Rows rows_;
  int lo_ = 0;
  EnvMarker marker_;
  Autoreset autoreset_;
  std::vector<std::byte> info_;
  std::string how_to_close_;
};

std::vector<std::byte> bytes_of(std::string_view text);
std::string text_of(std::span<const std::byte> bytes);

/// Workers of rounds, of the entry "toy", with these numbers of environments. `payload` may be "" or one of:
/// "throw" (the entry fails while it builds its environments), "exit", "hang", "other spaces";
/// "runs" before anything else makes them divisible.
std::vector<process::WorkerSpec> toy_specs(const std::vector<int>& counts);
int toy_entry(process::WorkerContext& context);

/// The same as workers of a pool. A session's payload may also be "kill at POINT N": the worker
/// kills itself when it passes AsyncWorkerHooks::pass with POINT for the N-th time; "runs kill at
/// POINT N" where it obeys neighbours together.
std::vector<process::WorkerSpec> toy_pool_specs(int num_workers);
int toy_pool_entry(process::WorkerContext& context);

/// The entries of the tests' worker programs: "toy", "toy-pool" and the native ones.
process::EntryTable test_entries();

/// A stepper for the spec, or what the spec's payload asks for.
std::unique_ptr<Stepper> make_toy(int count, std::string_view payload);

}  // namespace shoal::vector::testing
