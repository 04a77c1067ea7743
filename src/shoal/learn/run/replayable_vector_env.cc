#include "shoal/learn/run/replayable_vector_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shoal::learn {
namespace {

constexpr std::int64_t kByteValues = 256;

/// [rows, …row]
shm::TensorSpec stacked(std::int64_t rows, const shm::TensorSpec& row) {
  shm::TensorSpec spec{row.dtype, {rows}};
  spec.shape.insert(spec.shape.end(), row.shape.begin(), row.shape.end());
  return spec;
}

/// Calls f with a value of the C++ type of an integer dtype.
template <class F>
void with_integer(shm::DType dtype, F&& f) {
  bool is_integer = false;
  shm::with_type_of(dtype, [&]<class T>(T zero) {
    if constexpr (std::is_integral_v<T>) {
      is_integer = true;
      f(zero);
    }
  });
  if (!is_integer)
    throw InvalidArgument("an action's integers have an element type that is not one");
}

/// The values that one integer of the leaf can take fit in a byte, counted from one common start.
bool fits_a_byte(const env::Space& leaf, std::int64_t& start) {
  if (const auto* discrete = leaf.get_if<env::Discrete>()) {
    start = discrete->start;
    return discrete->n <= kByteValues;
  }
  if (const auto* multi = leaf.get_if<env::MultiDiscrete>()) {
    start = 0;
    for (std::size_t i = 0; i < multi->nvec.size(); ++i)
      if (multi->start[i] < 0 || multi->start[i] + multi->nvec[i] > kByteValues) return false;
    return true;
  }
  return false;
}

std::string leaf_name(const char* prefix, const env::Leaf& leaf) {
  return leaf.path.empty() ? prefix : fmt::format("{}/{}", prefix, leaf.path);
}

/// Where each leaf of `space` lies, as Python reaches it: "['a']['b']", in the order of env::leaves().
void spell(const env::Space& space, const std::string& at, std::vector<std::string>& places) {
  if (const auto* dict = space.get_if<env::Dict>()) {
    for (const auto& [key, child] : dict->spaces)
      spell(child, fmt::format("{}['{}']", at, key), places);
  } else if (const auto* tuple = space.get_if<env::Tuple>()) {
    for (std::size_t i = 0; i < tuple->spaces.size(); ++i)
      spell(tuple->spaces[i], fmt::format("{}[{}]", at, i), places);
  } else {
    places.push_back(at);
  }
}

/// Throws InvalidArgument where two leaves of `space` have one path, which is their name in a record.
void check_paths(const char* which, const env::Space& space) {
  std::vector<std::string> places;
  spell(space, "", places);
  std::map<std::string, std::size_t> known;
  const auto leaves = env::leaves(space);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto [first, is_new] = known.emplace(leaves[i].path, i);
    if (is_new) continue;
    throw InvalidArgument(
        fmt::format("learn in environments of the {} space {}: {} and {} are both \"{}\" in a "
                    "checkpoint; give one of them a key without \"/\"",
                    which, space.repr(), places[first->second], places[i], leaves[i].path));
  }
}

constexpr std::string_view kActions = "actions";

/// One array of a record, cut by environments.
struct EnvRows {
  EnvRows(std::string array_name, const SafeTensorView& array)
      : name(std::move(array_name)), view(array), dimension(name.starts_with(kActions) ? 1 : 0) {
    times = dimension == 0 ? 1 : static_cast<std::size_t>(view.spec.shape[0]);
    envs = static_cast<std::size_t>(view.spec.shape[dimension]);
    bytes = times * envs == 0 ? 0 : view.spec.bytes() / (times * envs);
  }

  /// Of some environments, at one of `times`.
  std::span<const std::byte> rows(std::size_t time, std::size_t first, std::size_t count) const {
    return view.bytes.subspan((time * envs + first) * bytes, count * bytes);
  }
  shm::TensorSpec spec_of(std::size_t count) const {
    shm::TensorSpec spec = view.spec;
    spec.shape[dimension] = static_cast<std::int64_t>(count);
    return spec;
  }

  std::string name;
  SafeTensorView view;
  std::size_t dimension;  // which one counts environments
  std::size_t times;      // that they come: once a step
  std::size_t envs;
  std::size_t bytes;  // of one, once
};

/// In the order of the file, which a file that is made of them keeps.
std::vector<EnvRows> rows_of(const SafeTensors& record) {
  std::vector<EnvRows> arrays;
  for (const auto& [name, view] : record.tensors()) arrays.emplace_back(name, view);
  std::ranges::stable_sort(arrays, {}, [](const EnvRows& rows) { return rows.view.bytes.data(); });
  return arrays;
}

NamedArray named(std::string name, shm::TensorSpec spec, std::span<const std::byte> bytes) {
  return {std::move(name), std::move(spec), {bytes.begin(), bytes.end()}};
}

}  // namespace

ReplayableVectorEnv::ReplayableVectorEnv(std::shared_ptr<vector::VectorEnv> envs)
    : envs_(std::move(envs)) {
  check_paths("observation", envs_->single_observation_space());
  check_paths("action", envs_->single_action_space());
  for (const auto& leaf : env::leaves(envs_->single_action_space())) {
    ActionColumn column;
    column.name = leaf_name("actions", leaf);
    column.stored = stacked(num_envs(), leaf.spec);
    column.narrow = fits_a_byte(leaf.space, column.start);
    if (column.narrow) column.stored.dtype = shm::DType::kU8;
    columns_.push_back(std::move(column));
  }
  for (const auto& leaf : env::leaves(envs_->single_observation_space()))
    obs_names_.push_back(leaf_name("obs", leaf));
}

const env::Space& ReplayableVectorEnv::single_observation_space() const noexcept {
  return envs_->single_observation_space();
}

const env::Space& ReplayableVectorEnv::single_action_space() const noexcept {
  return envs_->single_action_space();
}

vector::AutoresetMode ReplayableVectorEnv::autoreset_mode() const noexcept {
  return envs_->autoreset_mode();
}

void ReplayableVectorEnv::reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                                      std::span<const std::uint8_t> mask) {
  const bool all = std::ranges::all_of(mask, [](auto selected) { return selected != 0; });
  const bool seeded = seeds.size() == static_cast<std::size_t>(num_envs()) &&
                      std::ranges::all_of(seeds, [](const auto& seed) { return seed.has_value(); });
  seeds_.clear();
  steps_ = 0;
  for (auto& column : columns_) column.bytes.clear();
  if (all && seeded)
    for (const auto& seed : seeds) seeds_.push_back(*seed);
  envs_->reset_async(seeds, mask);
}

void ReplayableVectorEnv::step_async() {
  if (!seeds_.empty()) append_actions();
  envs_->step_async();
}

vector::Batch ReplayableVectorEnv::wait(std::optional<std::chrono::nanoseconds> timeout) {
  return batch_ = envs_->wait(timeout);
}

std::vector<std::byte> ReplayableVectorEnv::request(
    int worker, std::span<const std::byte> message,
    std::optional<std::chrono::nanoseconds> timeout) {
  return envs_->request(worker, message, timeout);
}

void ReplayableVectorEnv::append_actions() {
  const auto views = envs_->actions();
  for (std::size_t leaf = 0; leaf < columns_.size(); ++leaf) {
    auto& column = columns_[leaf];
    const auto& view = views[leaf];
    const auto at = column.bytes.size();
    column.bytes.resize(at + column.stored.bytes());
    auto* out = column.bytes.data() + at;
    if (!column.narrow) {
      std::memcpy(out, view.data, view.bytes());
      continue;
    }
    with_integer(view.row.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (const T value : view.as<T>())
        *out++ = static_cast<std::byte>(static_cast<std::int64_t>(value) - column.start);
    });
  }
  ++steps_;
}

void ReplayableVectorEnv::write_actions(const SafeTensors& record, std::int64_t step) {
  const auto views = envs_->actions();
  for (std::size_t leaf = 0; leaf < columns_.size(); ++leaf) {
    const auto& column = columns_[leaf];
    const auto& view = views[leaf];
    const auto* in = record.at(column.name).bytes.data() +
                     static_cast<std::size_t>(step) * column.stored.bytes();
    if (!column.narrow) {
      std::memcpy(view.data, in, view.bytes());
      continue;
    }
    with_integer(view.row.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (T& value : view.as<T>())
        value = static_cast<T>(static_cast<std::int64_t>(*in++) + column.start);
    });
  }
}

std::vector<NamedArray> ReplayableVectorEnv::record() const {
  std::vector<NamedArray> arrays;
  if (seeds_.empty()) return arrays;
  arrays.push_back(
      named("seeds", {shm::DType::kU64, {num_envs()}}, std::as_bytes(std::span(seeds_))));
  for (const auto& column : columns_)
    arrays.push_back(named(column.name, stacked(steps_, column.stored), column.bytes));
  for (std::size_t leaf = 0; leaf < obs_names_.size(); ++leaf) {
    const auto& view = batch_.obs[leaf];
    arrays.push_back(
        named(obs_names_[leaf], stacked(view.rows, view.row), {view.data, view.bytes()}));
  }
  return arrays;
}

std::optional<vector::Batch> ReplayableVectorEnv::replay(const SafeTensors& record) {
  if (!record.contains("seeds")) return {};
  const auto& seeds = record.at("seeds", {shm::DType::kU64, {num_envs()}});
  std::int64_t steps = 0;
  for (const auto& column : columns_) {
    const auto& shape = record.at(column.name).spec.shape;
    steps = shape.empty() ? 0 : shape[0];
    record.at(column.name, stacked(steps, column.stored));
    record.at(columns_[0].name, stacked(steps, columns_[0].stored));
  }
  std::vector<std::optional<std::uint64_t>> reset_seeds;
  for (int i = 0; i < num_envs(); ++i) {
    std::uint64_t seed = 0;
    std::memcpy(&seed, seeds.bytes.data() + static_cast<std::size_t>(i) * sizeof(seed),
                sizeof(seed));
    reset_seeds.emplace_back(seed);
  }
  reset_async(reset_seeds);
  wait();
  for (std::int64_t step = 0; step < steps; ++step) {
    write_actions(record, step);
    step_async();
    wait();
  }
  if (!arrived(record)) return {};
  return batch_;
}

std::vector<NamedArray> ReplayableVectorEnv::join(const std::vector<SafeTensors>& records) {
  std::vector<NamedArray> joined;
  for (const SafeTensors& record : records)
    if (!record.contains("seeds")) return {};
  for (const EnvRows& first : rows_of(records.front())) {
    std::vector<EnvRows> all;
    std::size_t envs = 0;
    for (const SafeTensors& record : records) {
      all.emplace_back(first.name, record.at(first.name));
      if (all.back().spec_of(first.envs) != first.view.spec) return {};  // of other steps
      envs += all.back().envs;
    }
    NamedArray array{first.name, first.spec_of(envs), {}};
    for (std::size_t time = 0; time < first.times; ++time)
      for (const EnvRows& its : all) {
        const auto from = its.rows(time, 0, its.envs);
        array.bytes.insert(array.bytes.end(), from.begin(), from.end());
      }
    joined.push_back(std::move(array));
  }
  return joined;
}

SafeTensors ReplayableVectorEnv::part(const SafeTensors& record, int first, int count) {
  std::vector<NamedArray> arrays;
  const auto wanted = static_cast<std::size_t>(count);
  for (const EnvRows& whole : rows_of(record)) {
    if (static_cast<std::size_t>(first) + wanted > whole.envs)
      throw CorruptFile(fmt::format("the record of the environments has {} of them, not {}",
                                    whole.envs, first + count));
    NamedArray array{whole.name, whole.spec_of(wanted), {}};
    for (std::size_t time = 0; time < whole.times; ++time) {
      const auto from = whole.rows(time, static_cast<std::size_t>(first), wanted);
      array.bytes.insert(array.bytes.end(), from.begin(), from.end());
    }
    arrays.push_back(std::move(array));
  }
  return SafeTensors::parse(serialize(arrays), "the record of the environments");
}

bool ReplayableVectorEnv::arrived(const SafeTensors& record) const {
  for (std::size_t leaf = 0; leaf < obs_names_.size(); ++leaf) {
    const auto& view = batch_.obs[leaf];
    const auto& saved = record.at(obs_names_[leaf], stacked(view.rows, view.row));
    if (std::memcmp(saved.bytes.data(), view.data, view.bytes()) != 0) return false;
  }
  return true;
}

}  // namespace shoal::learn
