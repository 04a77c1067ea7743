#include "shoal/learn/remote/remote_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "shoal/group/connection/compression.h"
#include "shoal/learn/learner/all_finite.h"
#include "shoal/os/error.h"
#include "shoal/process/codec.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {
namespace {

using process::ByteReader;
using process::ByteWriter;

constexpr std::size_t kSmallestFrame = 1024;  // bytes of a row that lz4 is worth its while for
constexpr std::size_t kBesides = std::size_t{1} << 20;  // of a message, beside its arrays

enum class ArrayForm : std::uint8_t { kRaw, kLz4 };

ByteWriter begin_remote(RemoteKind kind, const RemoteHead& head) {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind));
  writer.text(head.run);
  writer.number(head.attempt);
  writer.number(head.version);
  return writer;
}

void write_doubles(ByteWriter& writer, std::span<const double> values) {
  writer.bytes(std::as_bytes(values));
}

std::vector<double> read_doubles(ByteReader& reader) {
  const auto bytes = reader.bytes();
  if (bytes.size() % sizeof(double) != 0) throw Error("numbers that are cut short");
  std::vector<double> values(bytes.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void write_moments(ByteWriter& writer, const collect::RunningMoments& moments) {
  write_doubles(writer, moments.mean());
  write_doubles(writer, moments.var());
  writer.number(std::bit_cast<std::uint64_t>(moments.count()));
}

void read_moments(ByteReader& reader, collect::RunningMoments& moments) {
  const auto mean = read_doubles(reader);
  const auto var = read_doubles(reader);
  const auto count = std::bit_cast<double>(reader.number<std::uint64_t>());
  if (mean.size() != moments.size() || var.size() != moments.size())
    throw Error("moments of another network's normaliser");
  if (!mean.empty()) moments.restore(mean, var, count);
}

bool is_of_frames(const shm::TensorView& view) {
  return view.row.dtype == shm::DType::kU8 && view.row_bytes() >= kSmallestFrame;
}

/// The rows of one environment, one after the other.
std::vector<std::byte> column_of(const shm::TensorView& view, int env, int envs) {
  const std::size_t row = view.row_bytes();
  std::vector<std::byte> column;
  column.reserve(view.bytes() / static_cast<std::size_t>(envs));
  for (std::int64_t r = env; r < view.rows; r += envs)
    column.insert(column.end(), view.row_data(r), view.row_data(r) + row);
  return column;
}

void put_column(std::span<const std::byte> column, const shm::TensorView& view, int env, int envs) {
  const std::size_t row = view.row_bytes();
  std::size_t at = 0;
  for (std::int64_t r = env; r < view.rows; r += envs, at += row)
    std::memcpy(view.row_data(r), column.data() + at, row);
}

void write_array(ByteWriter& writer, const shm::TensorView& view, int envs, bool compress) {
  if (!compress || !is_of_frames(view)) {
    writer.number(static_cast<std::uint8_t>(ArrayForm::kRaw));
    return writer.bytes({view.data, view.bytes()});
  }
  writer.number(static_cast<std::uint8_t>(ArrayForm::kLz4));
  std::vector<std::byte> block;
  for (int env = 0; env < envs; ++env) {
    group::compress(column_of(view, env, envs), block);
    writer.bytes(block);
  }
}

void read_array(ByteReader& reader, const std::string& name, const shm::TensorView& view,
                int envs) {
  const auto form = static_cast<ArrayForm>(reader.number<std::uint8_t>());
  if (form == ArrayForm::kRaw) {
    const auto bytes = reader.bytes();
    if (bytes.size() != view.bytes())
      throw Error(
          fmt::format("a rollout whose {} has {} bytes, not {}", name, bytes.size(), view.bytes()));
    if (!bytes.empty()) std::memcpy(view.data, bytes.data(), bytes.size());
    return;
  }
  if (form != ArrayForm::kLz4) throw Error("a rollout in a form that there is not");
  std::vector<std::byte> column(view.bytes() / static_cast<std::size_t>(envs));
  for (int env = 0; env < envs; ++env) {
    group::decompress(reader.bytes(), column);
    put_column(column, view, env, envs);
  }
}

void check_actions(collect::Rollout& rollout, std::span<const std::int64_t> categories) {
  if (categories.empty()) return;
  const auto actions = rollout.action().as<std::int32_t>();
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (actions[i] < 0 || actions[i] >= categories[i % categories.size()])
      throw Error(fmt::format("a rollout with an action {} of {}", actions[i],
                              categories[i % categories.size()]));
}

/// Throws Error for what is not finite in steps that count, and in observations: learned from, it
/// would end everybody's run.
void check_finite(collect::Rollout& rollout) {
  const auto valid = rollout.valid();
  const auto check = [&valid](const char* what, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (valid[i] != 0 && !std::isfinite(values[i]))
        throw Error(fmt::format("a rollout with a {} that is not finite: {}", what, values[i]));
  };
  check("reward", rollout.reward());
  check("value", rollout.value());
  check("log-probability", rollout.logp());
  for (std::size_t i = 0; rollout.ends_are_replaced() && i < valid.size(); ++i) {
    const bool its_own =
        valid[i] != 0 && rollout.truncated()[i] != 0 && rollout.terminated()[i] == 0;
    if (its_own && !std::isfinite(rollout.next_value()[i]))
      throw Error(fmt::format("a rollout with a value of a last observation that is not finite: {}",
                              rollout.next_value()[i]));
  }
  for (const shm::TensorView& leaf : rollout.obs()) {
    if (leaf.row.dtype != shm::DType::kF32) continue;
    const std::int64_t count = (leaf.rows + rollout.envs()) * leaf.row.numel();
    if (!all_finite(
            std::span(reinterpret_cast<const float*>(leaf.data), static_cast<std::size_t>(count))))
      throw Error("a rollout with an observation that is not finite");
  }
}

}  // namespace

RemoteOpened open_remote(std::span<const std::byte> message) {
  ByteReader reader(message);
  const auto kind = static_cast<RemoteKind>(reader.number<std::uint8_t>());
  if (kind < RemoteKind::kReady || kind > RemoteKind::kRollout)
    throw Error("a message of a kind that there is not");
  RemoteHead head;
  head.run = reader.text();
  head.attempt = reader.number<std::uint64_t>();
  head.version = reader.number<std::int64_t>();
  return {kind, std::move(head), message.last(reader.left())};
}

std::vector<std::byte> pack_ready(const RemoteHead& head) {
  return begin_remote(RemoteKind::kReady, head).take();
}

std::vector<std::byte> pack_work(const RemoteHead& head, std::span<const float> parameters,
                                 const Normalizers& normalizers) {
  ByteWriter writer = begin_remote(RemoteKind::kWork, head);
  write_moments(writer, normalizers.obs);
  write_moments(writer, normalizers.rewards);
  writer.bytes(std::as_bytes(parameters));
  return writer.take();
}

std::span<const std::byte> unpack_work(std::span<const std::byte> rest, Normalizers& normalizers) {
  ByteReader reader(rest);
  read_moments(reader, normalizers.obs);
  read_moments(reader, normalizers.rewards);
  const auto size = reader.number<std::uint32_t>();
  if (size != reader.left()) throw Error("weights that are cut short");
  return rest.last(size);
}

void merge(std::span<const double> news, collect::RunningMoments& moments) {
  const std::size_t size = moments.size();
  if (news.empty() && size == 0) return;
  if (news.size() != 1 + 2 * size) throw Error("news of another network's normaliser");
  if (!all_finite(news))
    throw Error("observations or rewards that are not finite have reached a normaliser");
  if (news[0] > 0) moments.merge(news.subspan(1, size), news.subspan(1 + size, size), news[0]);
}

std::vector<std::byte> pack_rollout(const RemoteHead& head, CollectedRollout& collected,
                                    const NormalizerNews& news, bool compress) {
  ByteWriter writer = begin_remote(RemoteKind::kRollout, head);
  write_doubles(writer, news.obs);
  write_doubles(writer, news.rewards);
  writer.number(static_cast<std::uint32_t>(collected.finished.size()));
  for (const collect::Episode& episode : collected.finished) {
    writer.number(std::int32_t{episode.env});
    writer.number(std::bit_cast<std::uint64_t>(episode.episode_return));
    writer.number(std::int64_t{episode.length});
  }
  writer.number(static_cast<std::uint8_t>(collected.rollout.ends_are_replaced() ? 1 : 0));
  for (const auto& [name, view] : arrays_of(collected.rollout))
    write_array(writer, view, collected.rollout.envs(), compress);
  return writer.take();
}

void unpack_rollout(std::span<const std::byte> rest, std::span<const std::int64_t> categories,
                    CollectedRollout& collected, NormalizerNews& news) {
  ByteReader reader(rest);
  news.obs = read_doubles(reader);
  news.rewards = read_doubles(reader);
  const auto episodes = reader.number<std::uint32_t>();
  if (episodes > collected.rollout.size())
    throw Error("a rollout with more episodes than it has steps");
  collected.finished.clear();
  for (std::uint32_t i = 0; i < episodes; ++i) {
    collect::Episode episode;
    episode.env = reader.number<std::int32_t>();
    episode.episode_return = std::bit_cast<double>(reader.number<std::uint64_t>());
    episode.length = reader.number<std::int64_t>();
    if (episode.env < 0 || episode.env >= collected.rollout.envs())
      throw Error("an episode of an environment that there is not");
    collected.finished.push_back(episode);
  }
  const auto replaced = reader.number<std::uint8_t>();
  if (replaced > 1) throw Error("a rollout whose ends are neither replaced nor not");
  collected.rollout.replace_ends(replaced != 0);
  for (const auto& [name, view] : arrays_of(collected.rollout))
    read_array(reader, name, view, collected.rollout.envs());
  if (reader.left() != 0) throw Error("a rollout with something behind it");
  check_actions(collected.rollout, categories);
  check_finite(collected.rollout);
}

std::size_t longest_rollout_message(CollectedRollout& room) {
  std::size_t bytes = kBesides;
  for (const auto& [name, view] : arrays_of(room.rollout))
    bytes += view.bytes() + view.bytes() / 128;  // what lz4 makes at most of what has no pattern
  return bytes + 3 * sizeof(std::uint64_t) * room.rollout.size() +
         2 * sizeof(double) * room.obs_moments.size();
}

std::size_t longest_work_message(std::size_t parameters, const Normalizers& normalizers) {
  return kBesides + parameters * sizeof(float) + 2 * sizeof(double) * normalizers.obs.size();
}

}  // namespace shoal::learn
