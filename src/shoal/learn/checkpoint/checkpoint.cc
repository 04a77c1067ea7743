#include "shoal/learn/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "shoal/env/json_text.h"
#include "shoal/learn/checkpoint/durable_file.h"

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

/// FNV-1a, 64 bits: finds damage and mix-ups, not malice.
std::string checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (auto byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
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
  const json found = {{"bytes", bytes.size()}, {"fnv1a64", checksum(bytes)}};
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
      const auto bytes = serialize_safetensors(tensors, {{"format", "pt"}});
      complete["files"][name] = {{"bytes", bytes.size()}, {"fnv1a64", checksum(bytes)}};
      write_file(fresh / name, bytes);
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
  const auto directory = find_directory(path);
  Checkpoint checkpoint;
  checkpoint.state = read_state(directory);
  checkpoint.policy = read_arrays(directory, kPolicyFile, checkpoint.state);
  if (part == Part::kAll) {
    checkpoint.optimizer = read_arrays(directory, kOptimizerFile, checkpoint.state);
    checkpoint.envs = read_arrays(directory, kEnvsFile, checkpoint.state);
  }
  return checkpoint;
}

}  // namespace shoal::learn
