// The C++ networks of this layer as a collector's actor: drawn actions, their log-probabilities and
// values.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "shoal/collect/actor.h"
#include "shoal/env/space.h"
#include "shoal/learn/algorithm/algorithm_config.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/acting_policy.h"

namespace shoal::learn {

class NetworkActor final : public collect::Actor {
 public:
  /// A new network for these spaces, initialised from `seed`, which its actions are drawn from,
  /// too. Throws InvalidArgument for spaces that it does not cover.
  NetworkActor(const env::Space& observation, const env::Space& action,
               const AlgorithmConfig& config, std::uint64_t seed);

  /// That of a checkpoint. Throws CorruptFile when the directory holds none, InvalidArgument when
  /// it was trained with other spaces than these.
  static NetworkActor load(const std::filesystem::path& checkpoint, const env::Space& observation,
                           const env::Space& action, std::uint64_t seed);

  void act(const collect::Decision& decision) override;
  /// Draws from `seed` from now on.
  void reseed(std::uint64_t seed) noexcept { agent_->reseed(seed); }

  /// What it remembers of each row's episode: `memory_size()` numbers a row, 0 where it is not
  /// recurrent; none before the first act(). Whoever lets it act for several sets of environments in
  /// turn gives each its own back.
  std::size_t memory_size() const { return agent_->memory_size(); }
  std::span<const float> memory() const noexcept { return memory_.all(); }
  /// Throws InvalidArgument for values that are not of whole rows.
  void load_memory(std::span<const float> values);

  /// Parameters and the normaliser of observations, under the names of a checkpoint's
  /// policy.safetensors.
  std::vector<NamedArray> weights() const;
  /// Throws InvalidArgument when names, shapes or types are not this network's; nothing has then
  /// changed.
  void load_weights(std::vector<NamedArray> weights);

 private:
  std::unique_ptr<ActingPolicy> agent_;
  EpisodeMemory memory_;
};

}  // namespace shoal::learn
