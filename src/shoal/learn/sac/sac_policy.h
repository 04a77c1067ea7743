// The policy of SAC: a network's squashed Gaussian, scaled to the bounds of the Box.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/env/space.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/learner/encoded_rows.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/philox.h"
#include "shoal/learn/sac/sac_config.h"

namespace shoal::learn {

class SacPolicy final : public ActingPolicy {
 public:
  /// Throws InvalidArgument for spaces that it does not cover (which, and what it covers).
  SacPolicy(const env::Space& observation, const env::Space& action, const SacConfig& config,
            std::uint64_t seed);
  SacPolicy(const SacPolicy&) = delete;
  SacPolicy& operator=(const SacPolicy&) = delete;

  /// Deterministic: tanh of the means.
  void act(std::span<const shm::TensorView> obs, std::span<float> memory,
           std::span<const shm::TensorView> actions, bool deterministic,
           std::uint64_t step = 0) override;
  /// Log-probabilities are those of the action within [-1, 1]. It has no values: NaN.
  void decide(std::span<const shm::TensorView> obs, std::span<float> memory, std::uint64_t step,
              const shm::TensorView& action, std::span<float> log_prob,
              std::span<float> value) override;
  void reseed(std::uint64_t seed) noexcept override { random_ = Philox(seed); }
  void save(LearnerState& state) const override;
  void load(const LearnerState& state) override;

  /// Elements of an action.
  std::size_t dimensions() const noexcept { return dimensions_; }
  /// Actions within [-1, 1] for encoded observations, with the random numbers of (stream, step, row).
  void sample(std::span<const shm::TensorView> obs, Stream stream, std::uint64_t step,
              std::span<float> actions, std::span<float> log_prob);
  /// From [-1, 1] to the environments' form.
  void decode(const shm::TensorView& actions, const shm::TensorView& to) const;

  /// Standard normal numbers of (stream, step, row, which), `dimensions()` a row; `which` below 2^16 tells
  /// several draws of one step apart.
  void fill_noise(Stream stream, std::uint64_t step, std::uint32_t which,
                  std::span<float> noise) const;

  collect::ObservationEncoder& encoder() noexcept { return encoder_; }
  const collect::ActionDecoder& decoder() const noexcept { return decoder_; }
  const Mlp& layers() const noexcept { return layers_; }
  MlpChain& network() noexcept { return *network_; }
  Parameters& parameters() noexcept { return parameters_; }
  const Parameters& parameters() const noexcept { return parameters_; }
  const Philox& random() const noexcept { return random_; }

 private:
  /// The head of the network for encoded observations, rows of padded(2 dimensions) floats.
  FloatRows head_of(std::span<const shm::TensorView> obs);

  collect::ObservationEncoder encoder_;
  collect::ActionDecoder decoder_;
  std::size_t dimensions_;
  Philox random_;
  Parameters parameters_;
  Mlp layers_;
  std::unique_ptr<MlpChain> network_;
  EncodedRows rows_;
  std::vector<float> noise_, unit_, logp_;
  mutable std::vector<float> scaled_;
};

/// As the constructor.
std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action, const SacConfig& config,
                                                 std::uint64_t seed);

}  // namespace shoal::learn
