// All of a learner's state as named arrays and counters, so that a checkpoint of it continues bit
// for bit.
//
// Torch-free: a checkpoint writes these bytes as they are.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shoal/learn/checkpoint/safetensors.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// An array that owns its bytes (C order).
struct NamedArray {
  std::string name;
  shm::TensorSpec spec;
  std::vector<std::byte> bytes;
  bool operator==(const NamedArray&) const = default;
};

/// The file of these arrays (safetensors.h).
inline std::vector<std::byte> serialize(const std::vector<NamedArray>& arrays) {
  std::vector<SafeTensor> borrowed;
  for (const NamedArray& array : arrays) borrowed.push_back({array.name, array.spec, array.bytes});
  return serialize_safetensors(borrowed, {});
}

struct LearnerState {
  std::vector<NamedArray>
      policy;  // names of the equivalent torch.nn.Module's state_dict: "actor.0.weight", …
  std::vector<NamedArray> optimizer;  // "exp_avg.actor.0.weight", "exp_avg_sq.…"
  std::vector<NamedArray>
      normalizer;  // "obs.mean", "obs.var", "obs.count", "return.…"; float64, empty when unused
  std::vector<NamedArray>
      episodes;  // of each environment's running episode: "return", "length", "discounted", …
  std::vector<NamedArray> replay;  // of learners that have one: what it holds
  nlohmann::json
      counters;  // steps, iteration, optimiser step, seed, finished episodes: small and readable
  bool operator==(const LearnerState&) const = default;
};

}  // namespace shoal::learn
