// A checkpoint: a directory that appears whole or not at all, and opens without pickle.
//
//   policy.safetensors   the policy under its Python state_dict names, with the normaliser of its
//                        observations
//   optim.safetensors    the optimiser's moments; only in a resumable checkpoint
//   envs.safetensors     what brings the environments back to where they were; only in a
//                        resumable checkpoint
//   state.json           the configuration, spaces, step, schedules' position, and the counters of
//                        the random streams: {"format": "shoal.checkpoint", "version": 1,
//                        "files": {name: {"bytes", "fnv1a64"}}, …}
//
// Invariants: the files of one directory were written together; a reader checks each against the
// size and checksum in state.json, so a damaged or mixed-up checkpoint is one clear error and never
// a wrong policy.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "shoal/learn/checkpoint/safetensors.h"

namespace shoal::learn {

/// The arrays of a checkpoint that is to be written, borrowed. Empty `optimizer` and `envs`: only
/// the policy is kept.
struct CheckpointArrays {
  std::vector<SafeTensor> policy;
  std::vector<SafeTensor> optimizer;
  std::vector<SafeTensor> envs;
};

/// Replaces the directory. `state` is an object; "format", "version" and "files" are added. Throws
/// SystemError.
void write_checkpoint(const std::filesystem::path& directory, const CheckpointArrays& arrays,
                      const nlohmann::json& state);

/// A checkpoint in memory.
struct Checkpoint {
  nlohmann::json state;
  SafeTensors policy;
  SafeTensors optimizer;  // empty unless kAll
  SafeTensors envs;       // empty unless kAll

  enum class Part { kPolicy, kAll };

  /// Throws CorruptFile when the directory is not a checkpoint, is one of a newer version, is
  /// damaged, or (kAll) holds a policy alone.
  static Checkpoint read(const std::filesystem::path& directory, Part part);
};

}  // namespace shoal::learn
