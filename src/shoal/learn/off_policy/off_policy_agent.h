// What acts for a learner from a replay: the encoder of observations, the parameters, the decoder of
// actions. An algorithm adds the network, and how it chooses an action.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/env/space.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/learner/encoded_rows.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/philox.h"
#include "shoal/learn/off_policy/off_policy_config.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class OffPolicyAgent : public ActingPolicy {
 public:
  OffPolicyAgent(const OffPolicyAgent&) = delete;
  OffPolicyAgent& operator=(const OffPolicyAgent&) = delete;

  void reseed(std::uint64_t seed) noexcept final { random_ = Philox(seed); }
  void save(LearnerState& state) const final;
  void load(const LearnerState& state) final;

  /// Actions as they are kept, rows of decoder().spec(), to the environments' form.
  virtual void decode(const shm::TensorView& actions, const shm::TensorView& to) const;

  collect::ObservationEncoder& encoder() noexcept { return encoder_; }
  const collect::ActionDecoder& decoder() const noexcept { return decoder_; }
  Parameters& parameters() noexcept { return parameters_; }
  const Parameters& parameters() const noexcept { return parameters_; }
  const Philox& random() const noexcept { return random_; }

 protected:
  /// Throws InvalidArgument for spaces that it does not cover (which, and what it covers).
  OffPolicyAgent(const env::Space& observation, const env::Space& action,
                 const OffPolicyConfig& config, std::uint64_t seed);

  /// Is told whenever they are.
  virtual void parameters_changed() = 0;

  /// Raw observations as the network takes them; valid until the next call.
  std::span<const shm::TensorView> encode(std::span<const shm::TensorView> obs) {
    return rows_.encode(encoder_, obs);
  }
  /// Room for an action for each row; valid until the next call.
  shm::TensorView actions_for(std::span<const shm::TensorView> obs) {
    return rows_.actions(decoder_.spec(), obs.front().rows);
  }

 private:
  collect::ObservationEncoder encoder_;
  collect::ActionDecoder decoder_;
  Philox random_;
  Parameters parameters_;
  EncodedRows rows_;
};

}  // namespace shoal::learn
