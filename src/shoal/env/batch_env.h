// Many environments of one kind, stepped by one call: what the vector engine steps.
//
// The engine pays one virtual call for a range of environments; inside, the loop is the
// environment's own and the compiler sees through it. Nothing is allocated after attach().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shoal/env/episode_options.h"
#include "shoal/env/reset_options.h"
#include "shoal/env/space.h"
#include "shoal/shm/tensor.h"

namespace shoal::env {

/// The arrays of one batch; row i belongs to environment i. A value: copying it copies pointers.
struct BatchRows {
  std::vector<shm::TensorView> obs;      // out, one per leaf of the observation space
  std::vector<shm::TensorView> actions;  // in, one per leaf of the action space
  std::span<double> reward;              // out
  std::span<std::uint8_t> terminated;    // out, 0 or 1
  std::span<std::uint8_t> truncated;     // out, 0 or 1
};

/// Environments [0, count()). They know their time limit; automatic resets are the engine's.
///
/// Threads: two threads may step or reset disjoint ranges at the same time; everything else one
/// thread at a time.
class BatchEnv {
 public:
  virtual ~BatchEnv() = default;
  BatchEnv(const BatchEnv&) = delete;
  BatchEnv& operator=(const BatchEnv&) = delete;

  virtual const Space& observation_space() const noexcept = 0;
  virtual const Space& action_space() const noexcept = 0;
  virtual int count() const noexcept = 0;

  /// Where the arrays are, from now on. Called before the first reset; may be called again. Throws
  /// InvalidArgument when an array is missing or has fewer rows, another element type or another
  /// shape than the spaces say.
  void attach(BatchRows rows);

  /// Begins an episode in environment i, seeded anew when `seed` is given, and writes its first
  /// observation. The row's reward, terminated and truncated are set to 0.
  virtual void reset(int i, std::optional<std::uint64_t> seed) = 0;

  /// The same with options. The default refuses all but none.
  virtual void reset_with(int i, std::optional<std::uint64_t> seed, const ResetOptions& options);
  /// Throws InvalidArgument for options that no reset takes, before any is begun. The default takes
  /// none.
  virtual void check_reset_options(const ResetOptions& options) const;

  /// Steps environments [lo, hi), each with its row's action. Every one of them must have been
  /// reset. Throws InvalidArgument, naming the row, for an action outside a discrete action space;
  /// rows before it are stepped.
  virtual void step_range(int lo, int hi) = 0;

  /// The numbers that, with the action, decide environment i's next step: for tests, drawing and
  /// restoring. Throws InvalidState where the environment does not offer them.
  virtual std::vector<double> state(int i) const;
  virtual void set_state(int i, std::span<const double> state);

  /// All that decides how environment i goes on, its random stream and its elapsed steps included:
  /// load() of these bytes, into any environment of a batch of the same id and arguments, continues
  /// with the same bits. The rows are the engine's. Throw InvalidState where the environment does
  /// not support it, InvalidArgument for bytes that are not of save().
  virtual std::vector<std::byte> save(int i) const;
  virtual void load(int i, std::span<const std::byte> state);

  /// Whether what environment i throws leaves the others as they are, and a new one can take its place.
  virtual bool can_renew() const noexcept { return false; }
  /// Makes a new environment in the place of i, which is then to be reset. Only where can_renew(). Throws what making it
  /// throws; the old one stays then.
  virtual void renew(int i);
  /// How many steps environment i's episode has had; -1 where it does not say.
  virtual int elapsed(int /*i*/) const noexcept { return -1; }

  /// What the engine is to do around these environments; of frame_stack and max_episode_steps they
  /// take care themselves.
  const EpisodeOptions& episode_options() const noexcept { return episode_options_; }
  void set_episode_options(EpisodeOptions options) { episode_options_ = std::move(options); }

 protected:
  BatchEnv() = default;
  /// Called by attach(), when rows() are the new ones.
  virtual void attached() {}
  const BatchRows& rows() const noexcept { return rows_; }

 private:
  BatchRows rows_;
  EpisodeOptions episode_options_;
};

}  // namespace shoal::env
