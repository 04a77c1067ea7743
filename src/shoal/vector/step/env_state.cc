#include "shoal/vector/step/env_state.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::vector {
namespace {

constexpr std::uint32_t kMagic = 0x31534e53;  // "SNS1"

}  // namespace

std::vector<std::byte> EnvState::save(int i, std::span<const std::byte> env,
                                      const std::vector<std::vector<std::byte>>* obs) const {
  const auto row = static_cast<std::size_t>(lo + i);
  process::ByteWriter out;
  out.number(kMagic);
  out.number(std::bit_cast<std::uint64_t>(rows.reward[row]));
  out.number(rows.terminated[row]);
  out.number(rows.truncated[row]);
  out.number(rows.reset[row]);
  out.number(static_cast<std::uint8_t>(autoreset.due(i)));
  out.number(static_cast<std::uint32_t>(rows.obs.size()));
  for (std::size_t leaf = 0; leaf < rows.obs.size(); ++leaf) {
    const shm::TensorView& view = rows.obs[leaf];
    out.bytes(obs != nullptr ? std::span<const std::byte>((*obs)[leaf])
                             : std::span<const std::byte>(view.row_data(lo + i), view.row_bytes()));
  }
  process::ByteWriter episode;
  episodes.save(i, episode);
  out.bytes(episode.take());
  out.bytes(env);
  return out.take();
}

EnvState::Parsed EnvState::parse(std::span<const std::byte> state) const try {
  process::ByteReader in(state);
  if (in.number<std::uint32_t>() != kMagic) throw Error("another beginning");
  Parsed parsed;
  parsed.reward = in.number<std::uint64_t>();
  parsed.terminated = in.number<std::uint8_t>();
  parsed.truncated = in.number<std::uint8_t>();
  parsed.reset = in.number<std::uint8_t>();
  parsed.due = in.number<std::uint8_t>();
  for (auto leaves = in.number<std::uint32_t>(); leaves > 0; --leaves) {
    parsed.obs.push_back(in.bytes());
  }
  parsed.episode = in.bytes();
  parsed.env = in.bytes();
  bool fits = parsed.obs.size() == rows.obs.size();
  for (std::size_t leaf = 0; fits && leaf < parsed.obs.size(); ++leaf) {
    fits = parsed.obs[leaf].size() == rows.obs[leaf].row_bytes();
  }
  if (fits) return parsed;
  throw InvalidArgument("the state is of an environment with another observation space");
} catch (const InvalidArgument&) {
  throw;
} catch (const Error&) {
  throw InvalidArgument(
      fmt::format("these {} bytes are not the state of an environment", state.size()));
}

void EnvState::apply(int i, const Parsed& parsed, std::vector<std::vector<std::byte>>* obs) const {
  const auto row = static_cast<std::size_t>(lo + i);
  rows.reward[row] = std::bit_cast<double>(parsed.reward);
  rows.terminated[row] = parsed.terminated;
  rows.truncated[row] = parsed.truncated;
  rows.reset[row] = parsed.reset;
  rows.has_final[row] = 0;
  autoreset.set_due(i, parsed.due != 0);
  process::ByteReader episode(parsed.episode);
  episodes.load(i, episode);
  if (obs != nullptr) {
    *obs = parsed.obs;
    return;
  }
  for (std::size_t leaf = 0; leaf < rows.obs.size(); ++leaf) {
    std::memcpy(rows.obs[leaf].row_data(lo + i), parsed.obs[leaf].data(), parsed.obs[leaf].size());
  }
}

}  // namespace shoal::vector
