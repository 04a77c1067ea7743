// A checkpoint's directory, whose state and arrays are the input's: its policy is loaded, or refused.
#include <unistd.h>

#include <filesystem>

#include "../input.h"
#include "shoal/env/json_text.h"
#include "shoal/env/space_json.h"
#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/checkpoint/checkpoint.h"
#include "shoal/learn/checkpoint/durable_file.h"
#include "shoal/learn/run/run_directory.h"
#include "shoal/learn/run/trained_policy.h"
#include "shoal/os/fnv1a.h"

namespace shoal::fuzz {
namespace {

namespace fs = std::filesystem;
using learn::TrainedPolicy;
using nlohmann::json;

/// Of this process, in memory; gone with it.
const fs::path& folder() {
  struct Folder {
    fs::path path = fs::path("/dev/shm") / ("shoal-fuzz-" + std::to_string(::getpid()));
    Folder() { fs::create_directories(path); }
    ~Folder() { fs::remove_all(path); }
  };
  static const Folder folder;
  return folder.path;
}

void write(const fs::path& path, std::span<const std::byte> bytes) {
  learn::write_file(path, bytes);
}

std::string checksum(std::span<const std::byte> bytes) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(os::fnv1a(bytes)));
  return text;
}

/// The state (a part), which is told of the arrays, and these. With a first byte of 0 the state is a
/// run's configuration.
void read(Input input) {
  const bool is_run = input.take<std::uint8_t>() == 0;
  const auto text = input.take_part();
  const auto arrays = input.rest();
  if (is_run) {
    write(folder() / "config.json", text);
    static_cast<void>(learn::read_run_config(folder()));
    return;
  }
  json state = env::parse_json({reinterpret_cast<const char*>(text.data()), text.size()});
  if (state.is_object() && state.contains("files")) {
    state["files"] = {
        {"policy.safetensors", {{"bytes", arrays.size()}, {"fnv1a64", checksum(arrays)}}}};
    const std::string whole = state.dump();
    write(folder() / "state.json", std::as_bytes(std::span(whole)));
  } else {
    write(folder() / "state.json", text);
  }
  write(folder() / "policy.safetensors", arrays);
  static_cast<void>(TrainedPolicy::load(folder()));
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  const env::Space box = env::float_box({-1, -1}, {1, 1}), two = env::Discrete{2};
  for (const auto& name : learn::algorithm_names()) {
    learn::TrainConfig config;
    config.algorithm = learn::make_algorithm_config(name);
    std::visit(
        [](auto& its) {
          its.policy_hidden = its.value_hidden = {4};
          if constexpr (requires { its.lstm_size; }) its.lstm_size = 2;
        },
        config.algorithm);
    const env::Space& action = name == "sac" ? box : two;
    const auto agent = learn::make_acting_policy(box, action, config.algorithm, 1);
    learn::LearnerState learner;
    agent->save(learner);
    const json state = {{"format", "shoal.checkpoint"},
                        {"version", 1},
                        {"files", json::object()},
                        {"step", 5},
                        {"config", to_flat_json(config)},
                        {"observation_space", env::space_to_json(box)},
                        {"action_space", env::space_to_json(action)}};
    const std::string text = state.dump();
    all.push_back(Output()
                      .put(std::uint8_t{1})
                      .put_part(std::as_bytes(std::span(text)))
                      .put_bytes(learn::serialize_safetensors(learn::arrays_of(learner, {}).policy,
                                                              {{"format", "pt"}}))
                      .take());
  }
  const std::string run = json({{"format", "shoal.run"}, {"version", 1}}).dump();
  all.push_back(Output().put(std::uint8_t{0}).put_part(std::as_bytes(std::span(run))).take());
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
