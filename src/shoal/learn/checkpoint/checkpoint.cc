#include "shoal/learn/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "shoal/env/json_text.h"
#include "shoal/learn/checkpoint/durable_file.h"
#include "shoal/os/fnv1a.h"

namespace shoal::learn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "shoal.checkpoint";
constexpr int kVersion = 1;
constexpr const char* kPolicyFile = "policy.safetensors";
constexpr const char* kOptimizerFile = "optim.safetensors";
constexpr const char* kEnvsFile = "envs.safetensors";
constexpr const char* kStateFile = "state.json";

/// What state.json says of a file that lies in these pieces.
json fingerprint(std::span<const std::span<const std::byte>> pieces) {
  os::Fnv1a hash;
  std::size_t size = 0;
  for (const auto& piece : pieces) {
    size += piece.size();
    hash.add(piece);
  }
  return {{"bytes", size}, {"fnv1a64", fmt::format("{:016x}", hash.value())}};
}

[[noreturn]] void fail(const fs::path& directory, const std::string& what) {
  throw CorruptFile(fmt::format("{}: not a usable checkpoint: {}", directory.string(), what));
}

json read_state(const fs::path& directory) {
  if (!fs::is_directory(directory)) fail(directory, "there is no such directory");
  if (!fs::exists(directory / kStateFile)) fail(directory, "it has no state.json");
  const auto bytes = read_file(directory / kStateFile);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  auto state = env::parse_json({text, bytes.size()});
  if (!state.is_object()) fail(directory, "its state.json is not a JSON object");
  const auto format = state.find("format");
  if (format == state.end() || *format != kFormat)
    fail(directory, "its state.json was not written by Shoal");
  const auto version = state.find("version");
  if (version == state.end() || !version->is_number_integer())
    fail(directory, "its state.json has no version");
  if (*version != kVersion)
    fail(directory,
         fmt::format("it has version {}, this Shoal reads version {}", version->dump(), kVersion));
  const auto files = state.find("files");
  if (files == state.end() || !files->is_object())
    fail(directory, "its state.json does not list its files");
  return state;
}

SafeTensors read_arrays(const fs::path& directory, const char* name, const json& state) {
  const auto listed = state["files"].find(name);
  if (listed == state["files"].end())
    fail(directory,
         fmt::format("it holds a policy alone, no {}: it can be evaluated, not resumed", name));
  if (!fs::exists(directory / name)) fail(directory, fmt::format("its {} is missing", name));
  auto bytes = read_file(directory / name);
  const std::span<const std::byte> piece = bytes;
  const json found = fingerprint({&piece, 1});
  if (found != *listed)
    fail(directory, fmt::format("its {} is damaged, or of another checkpoint ({} where state.json "
                                "says {})",
                                name, found.dump(), listed->dump()));
  return SafeTensors::parse(std::move(bytes), (directory / name).string());
}

}  // namespace

void write_checkpoint(const fs::path& directory, const CheckpointArrays& arrays,
                      const json& state) {
  replace_directory(directory, [&](const fs::path& fresh) {
    json complete = state;
    complete["format"] = kFormat;
    complete["version"] = kVersion;
    complete["files"] = json::object();
    const auto write = [&](const char* name, const std::vector<SafeTensor>& tensors) {
      const SafeTensorsPieces file = lay_out_safetensors(tensors, {{"format", "pt"}});
      std::vector pieces{std::as_bytes(std::span(file.head))};
      pieces.insert(pieces.end(), file.arrays.begin(), file.arrays.end());
      complete["files"][name] = fingerprint(pieces);
      write_file(fresh / name, pieces);
    };
    write(kPolicyFile, arrays.policy);
    if (!arrays.optimizer.empty() || !arrays.envs.empty()) {
      write(kOptimizerFile, arrays.optimizer);
      write(kEnvsFile, arrays.envs);
    }
    const auto text = complete.dump(1) + "\n";
    write_file(fresh / kStateFile, std::as_bytes(std::span(text)));
  });
}

Checkpoint Checkpoint::read(const fs::path& path, Part part) {
  Checkpoint checkpoint;
  read_directory(path, [&](const fs::path& directory) {
    checkpoint.state = read_state(directory);
    checkpoint.policy = read_arrays(directory, kPolicyFile, checkpoint.state);
    if (part == Part::kAll) {
      checkpoint.optimizer = read_arrays(directory, kOptimizerFile, checkpoint.state);
      checkpoint.envs = read_arrays(directory, kEnvsFile, checkpoint.state);
    }
  });
  return checkpoint;
}

}  // namespace shoal::learn
