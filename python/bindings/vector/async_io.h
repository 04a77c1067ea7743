// What crosses between Python and asynchronous environments: actions with their ids in, batches of
// those that are ready out, without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "shoal/os/memory/mapping.h"
#include "shoal/vector/async/async_vector_env.h"
#include "vector/copy_plan.h"
#include "vector/readiness.h"
#include "vector/waited_call.h"

namespace shoal::python {

/// The face of one AsyncVectorEnv. Arrays that recv() returns view the block that was lent, and
/// keep it.
///
/// Threads: one at a time, with the GIL.
class AsyncIo {
 public:
  /// The spaces are Gymnasium's single ones. Throws InvalidArgument for environments that are
  /// stepped all together.
  AsyncIo(const std::shared_ptr<vector::VectorEnv>& envs, nanobind::handle observation_space,
          nanobind::handle action_space, bool episode_statistics = false);

  /// `actions` has one element an id; `ids`: integers, or None for those that recv() or a
  /// synchronous call returned last.
  void send(nanobind::handle actions, nanobind::handle ids);
  /// As BatchIo::reset_async(), but the environments are in flight.
  void send_reset(nanobind::handle seeds, nanobind::handle mask);
  /// To be called before a reset: what the workers of these environments are told with it, a message
  /// each, or nothing.
  void tell_with_reset(const std::vector<std::int64_t>& ids,
                       const std::vector<nanobind::bytes>& messages);
  /// The same of native environments: the options, as JSON. Throws InvalidArgument for those that they do
  /// not take; waits for a worker where these are others than before, and all are busy.
  void set_reset_options(const std::vector<std::int64_t>& ids, const std::string& options);
  /// (observations, rewards, terminations, truncations, env_ids, Extra).
  nanobind::object recv(std::optional<double> timeout, std::optional<nanobind::list> kept);
  void discard(std::optional<double> timeout);

  // The synchronous calls, as BatchIo's; what they return are copies.
  void reset_async(nanobind::handle seeds, nanobind::handle mask);
  void step_async(nanobind::handle actions);
  nanobind::object reset_wait(std::optional<double> timeout);
  nanobind::object step_wait(std::optional<double> timeout);

  // Of the last result, whichever call gave it.

  /// A list of (slot, message) of the environments that said something: bytes, or decoded.
  nanobind::object infos() const;
  nanobind::object final_observation(int slot) const;
  nanobind::object has_final() const;
  nanobind::object fault() const;
  /// Of the episodes that ended: returns, lengths, seconds, and a mask, as BatchIo's.
  nanobind::object episodes() const;
  /// The environments of the rows, int64.
  nanobind::object env_ids() const { return env_ids_; }

  /// As BatchIo's, of all environments.
  const WaitedCall& call() const noexcept { return call_; }
  Readiness& readiness() noexcept { return readiness_; }
  vector::VectorEnv& envs() noexcept { return envs_; }
  /// To be called after a change of environments that live in this process.
  void environments_changed();
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Seeds {
    std::vector<std::optional<std::uint64_t>> values;
    std::span<const std::uint8_t> mask;
  };

  Seeds seeds_of(nanobind::handle seeds, nanobind::handle mask) const;
  bool has_objects() const { return observations_.objects() + actions_.objects() != 0; }
  void take_objects();
  ObjectRows observed_of(std::span<const std::int64_t> ids) const;
  void hand_over_objects();
  void take_ids(nanobind::handle ids);
  void stage(nanobind::handle actions);
  void spread() noexcept;
  int extra() const;
  nanobind::object flags(std::span<const std::uint8_t> values) const;
  vector::Batch wait(std::optional<double> timeout);

  std::shared_ptr<vector::VectorEnv> owner_;
  vector::AsyncVectorEnv& envs_;
  CopyPlan observations_;
  CopyPlan actions_;
  // What has no arrays, by environment; and the actions of the call under way, by place.
  ObjectRows observed_;
  ObjectRows finals_;
  ObjectRows sent_;
  nanobind::list decoded_;              // where there are objects: what came, as (slot, entries)
  std::vector<std::int64_t> last_ids_;  // likewise: the environments of the last result

  std::string checked_options_;  // of a reset before

  os::Mapping staging_;  // room for num_envs actions on their way to their rows
  std::vector<shm::TensorView> staged_;
  std::vector<std::int64_t> ids_;  // of the call under way
  nanobind::object env_ids_;
  nanobind::object all_ids_;
  vector::Arrivals last_;  // without its lease: the arrays have that
  WaitedCall call_;
  std::vector<std::uint8_t> has_final_;
  std::vector<std::uint8_t> fault_;
  bool episode_statistics_;
  Readiness readiness_;
};

}  // namespace shoal::python
