// The arrays that the caller and the workers share, one row an environment, and where each lies in
// the segment.
//
// Every array begins on its own cache line; scalars of one row are never in the line of another
// worker's observation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/shm/tensor.h"
#include "shoal/vector/step/autoreset.h"

namespace shoal::vector {

/// Views of the arrays in this process's mapping. A value: copying it copies pointers.
struct Rows {
  int num_envs = 0;
  AutoresetMode autoreset_mode{};
  std::vector<shm::TensorView> obs;        // one per leaf of the observation space
  std::vector<shm::TensorView> final_obs;  // the same; empty unless same-step autoreset
  std::vector<shm::TensorView> actions;    // one per leaf of the action space
  std::span<double> reward;
  std::span<std::uint8_t> terminated;
  std::span<std::uint8_t> truncated;
  std::span<std::uint8_t> reset;      // out: this step reset the row; 0 after an explicit reset
  std::span<std::uint8_t> has_final;  // out
  std::span<double> episode_return;   // out, where an episode ended and statistics are kept
  std::span<std::int64_t> episode_length;
  std::span<double> episode_seconds;
  std::span<std::uint8_t> fault;       // RowFault: out, written by the caller's side
  std::span<std::uint64_t> seed;       // in: for reset
  std::span<std::uint8_t> has_seed;    // in
  std::span<std::uint8_t> reset_mask;  // in
  std::span<std::uint8_t> order;       // RowOrder: in, looked at where the worker's cell says so

  int obs_sets = 1;          // how many sets of observation arrays there are
  int obs_set = 0;           // the one that `obs` shows
  int last_obs_set = 0;      // the one that it showed before
  std::size_t obs_stride{};  // bytes from one set to the next

  /// Lets `obs` show set `set`, below obs_sets.
  void select_obs(int set) noexcept;
  /// Row `row` of the set before becomes that of this one: for a row that nobody writes this time.
  void carry_over(int row) const noexcept;

  /// Bytes that the arrays of these spaces need, a multiple of the page size.
  static std::size_t bytes(const env::Space& observation, const env::Space& action, int num_envs,
                           AutoresetMode mode, int obs_sets = 1);
  /// The arrays laid out from `base` on. The same arguments give the same layout in every process.
  static Rows map(std::byte* base, const env::Space& observation, const env::Space& action,
                  int num_envs, AutoresetMode mode, int obs_sets = 1);
};

/// The first row of [begin, end) whose episode has ended (terminated or truncated); `end` when none
/// has.
std::size_t next_ended(const Rows& rows, std::size_t begin, std::size_t end) noexcept;

}  // namespace shoal::vector
