// What recurrent PPO is told: PPO's options, and what its network remembers. Defaults are sb3-contrib's:
// num_steps and batch_size 128, an LSTM of 256 cells for the policy and another one for the value.
//
// A minibatch is whole environments, about batch_size steps of them. A batch_size below num_steps cuts
// environments into pieces of about its length: what is learned through time reaches no further back.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/config/preset.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/ppo/ppo_config.h"

namespace shoal::learn {

struct RecurrentPpoConfig : PpoConfig {
  static constexpr std::string_view kAlgorithm = "recurrent_ppo";

  RecurrentPpoConfig() {
    num_steps = 128;
    batch_size = 128;
  }

  int lstm_size = 256;       // cells of an LSTM, which comes before the hidden layers
  bool shared_lstm = false;  // one LSTM for policy and value; false: one each

  bool operator==(const RecurrentPpoConfig&) const = default;

  Recurrence recurrence() const noexcept { return {.lstm_size = lstm_size, .shared = shared_lstm}; }

  /// "sb3", "cleanrl_atari_lstm", and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const RecurrentPpoConfig& config);

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, RecurrentPpoConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_option_of_update(c, visit);
  visit("lstm_size", c.lstm_size);
  visit("shared_lstm", c.shared_lstm);
}

}  // namespace shoal::learn
