// The bytes that an environment's state travels in.
//
//   u32      magic and version
//   f64      reward
//   3 × u8   terminated, truncated, reset
//   u8       whether an autoreset is due
//   u32      leaves of the observation, then the bytes of each
//   bytes    the episode: return, length, time so far
//   bytes    the environment's own
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/vector/step/autoreset.h"
#include "shoal/vector/step/episodes.h"
#include "shoal/vector/step/rows.h"

namespace shoal::vector {

/// What a stepper keeps of each of its environments, borrowed for one call.
struct EnvState {
  const Rows& rows;
  int lo;
  Autoreset& autoreset;
  Episodes& episodes;

  /// The state of environment `i`, whose own is `env`. Its observation is `obs`, leaf by leaf, or
  /// else its row.
  std::vector<std::byte> save(int i, std::span<const std::byte> env,
                              const std::vector<std::vector<std::byte>>* obs = nullptr) const;

  /// Puts `state` in force for environment `i`: `load_env` is called with the environment's own,
  /// when all else is known to fit, and before anything is changed. Where `obs` is given it
  /// receives the observation, leaf by leaf; else the row does. Throws InvalidArgument for what
  /// save() has not written, or for another observation space.
  template <class LoadEnv>
  void load(int i, std::span<const std::byte> state, LoadEnv load_env,
            std::vector<std::vector<std::byte>>* obs = nullptr) const {
    const Parsed parsed = parse(state);
    load_env(std::span<const std::byte>(parsed.env));
    apply(i, parsed, obs);
  }

 private:
  struct Parsed {
    std::uint64_t reward = 0;
    std::uint8_t terminated = 0;
    std::uint8_t truncated = 0;
    std::uint8_t reset = 0;
    std::uint8_t due = 0;
    std::vector<std::vector<std::byte>> obs;
    std::vector<std::byte> episode;
    std::vector<std::byte> env;
  };

  Parsed parse(std::span<const std::byte> state) const;
  void apply(int i, const Parsed& parsed, std::vector<std::vector<std::byte>>* obs) const;
};

}  // namespace shoal::vector
