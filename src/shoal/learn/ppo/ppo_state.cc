// Ppo's state as named arrays, and back.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "shoal/learn/ppo/ppo_impl.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

template <class T>
NamedArray array(std::string name, std::vector<std::int64_t> shape, std::span<const T> values) {
  NamedArray out{std::move(name), {shm::dtype_of<T>(), std::move(shape)}, {}};
  out.bytes.resize(values.size_bytes());
  if (!values.empty()) std::memcpy(out.bytes.data(), values.data(), values.size_bytes());
  return out;
}

template <class T>
NamedArray array(std::string name, std::span<const T> values) {
  return array(std::move(name), {static_cast<std::int64_t>(values.size())}, values);
}

// The values of `name`, which must have this type and shape.
template <class T>
std::span<const T> find(const std::vector<NamedArray>& arrays, const std::string& name,
                        const std::vector<std::int64_t>& shape) {
  const auto it = std::ranges::find(arrays, name, &NamedArray::name);
  if (it == arrays.end())
    throw InvalidArgument(fmt::format("load a learner's state: there is no array {}", name));
  const shm::TensorSpec wanted{shm::dtype_of<T>(), shape};
  if (it->spec != wanted || it->bytes.size() != wanted.bytes()) {
    throw InvalidArgument(
        fmt::format("load a learner's state: {} is {} [{}] where this learner's is {} [{}]; it was "
                    "trained with "
                    "another network or other spaces",
                    name, shm::name(it->spec.dtype), fmt::join(it->spec.shape, ", "),
                    shm::name(wanted.dtype), fmt::join(shape, ", ")));
  }
  return {reinterpret_cast<const T*>(it->bytes.data()), static_cast<std::size_t>(wanted.numel())};
}

template <class T>
std::span<const T> find(const std::vector<NamedArray>& arrays, const std::string& name,
                        std::size_t size) {
  return find<T>(arrays, name, std::vector<std::int64_t>{static_cast<std::int64_t>(size)});
}

void save_moments(const std::string& name, const collect::RunningMoments& moments,
                  std::vector<NamedArray>& out) {
  const double count = moments.count();
  out.push_back(array(name + ".mean", moments.mean()));
  out.push_back(array(name + ".var", moments.var()));
  out.push_back(array(name + ".count", std::span<const double>(&count, 1)));
}

void load_moments(const std::string& name, const std::vector<NamedArray>& in,
                  collect::RunningMoments& moments) {
  const auto mean = find<double>(in, name + ".mean", moments.size());
  const auto var = find<double>(in, name + ".var", moments.size());
  moments.restore(mean, var, find<double>(in, name + ".count", 1)[0]);
}

const nlohmann::json& counter(const LearnerState& state, const char* name) {
  if (!state.counters.contains(name)) {
    throw InvalidArgument(fmt::format("load a learner's state: there is no counter {}", name));
  }
  return state.counters.at(name);
}

std::vector<collect::Episode> episode_window(const LearnerState& state) {
  std::vector<collect::Episode> window;
  for (const auto& e : counter(state, "last_episodes")) {
    window.push_back({e.at(0).get<int>(), e.at(1).get<double>(), e.at(2).get<std::int64_t>()});
  }
  return window;
}

void load_flat(const std::vector<NamedArray>& arrays, const std::string& prefix,
               const Parameters& layout, std::span<float> flat) {
  for (const auto& p : layout.list()) {
    const auto values = find<float>(arrays, prefix + p.name, p.shape);
    std::ranges::copy(values, flat.subspan(p.offset).begin());
  }
}

void save_flat(const std::string& prefix, const Parameters& layout, std::span<const float> flat,
               std::vector<NamedArray>& out) {
  for (const auto& p : layout.list())
    out.push_back(array(prefix + p.name, p.shape, flat.subspan(p.offset, p.numel())));
}

}  // namespace

LearnerState Ppo::state() const {
  const Impl& me = *impl_;
  LearnerState state;
  const Parameters& parameters = me.policy.parameters();
  save_flat("", parameters, parameters.flat(), state.policy);
  save_flat("exp_avg.", parameters, me.update.adam().exp_avg(), state.optimizer);
  save_flat("exp_avg_sq.", parameters, me.update.adam().exp_avg_sq(), state.optimizer);
  if (me.encoder.moments().size() > 0) save_moments("obs", me.encoder.moments(), state.normalizer);
  if (me.config.normalize_reward) save_moments("return", me.rewards.moments(), state.normalizer);
  state.episodes.push_back(array("return", me.episodes.running_return()));
  state.episodes.push_back(array("length", me.episodes.running_length()));
  state.episodes.push_back(array("discounted", me.rewards.running_return()));
  auto window = nlohmann::json::array();
  for (const auto& e : me.episodes.window()) window.push_back({e.env, e.episode_return, e.length});
  state.counters = {
      {"seed", me.policy.random().seed()}, {"steps", me.steps},
      {"iteration", me.iteration},         {"optimizer_steps", me.update.adam().steps()},
      {"episodes", me.episodes.count()},   {"last_episodes", std::move(window)}};
  return state;
}

void Ppo::load_state(const LearnerState& state) {
  // All is read, and thereby checked, before anything of this learner changes.
  Impl& me = *impl_;
  const Parameters& layout = me.policy.parameters();
  AlignedFloats exp_avg(layout.flat().size());
  AlignedFloats exp_avg_sq(layout.flat().size());
  load_flat(state.optimizer, "exp_avg.", layout, exp_avg.span());
  load_flat(state.optimizer, "exp_avg_sq.", layout, exp_avg_sq.span());
  collect::RewardScaler rewards = me.rewards;
  if (me.config.normalize_reward) load_moments("return", state.normalizer, rewards.moments());
  const auto envs = static_cast<std::size_t>(me.num_envs);
  rewards.restore(find<double>(state.episodes, "discounted", envs));
  collect::EpisodeStats episodes = me.episodes;
  episodes.restore(episode_window(state), counter(state, "episodes").get<std::int64_t>(),
                   find<double>(state.episodes, "return", envs),
                   find<std::int64_t>(state.episodes, "length", envs));
  const auto steps = counter(state, "steps").get<std::int64_t>();
  const auto iteration = counter(state, "iteration").get<std::int64_t>();
  const auto optimizer_steps = counter(state, "optimizer_steps").get<std::int64_t>();
  const auto seed = counter(state, "seed").get<std::uint64_t>();

  load_policy(state);
  std::ranges::copy(exp_avg.span(), me.update.adam().exp_avg().begin());
  std::ranges::copy(exp_avg_sq.span(), me.update.adam().exp_avg_sq().begin());
  me.update.adam().set_steps(optimizer_steps);
  me.rewards = std::move(rewards);
  me.episodes = std::move(episodes);
  me.policy.reseed(seed);
  me.steps = steps;
  me.iteration = iteration;
}

void Ppo::load_policy(const LearnerState& state) {
  Impl& me = *impl_;
  Parameters& parameters = me.policy.parameters();
  AlignedFloats values(parameters.flat().size());
  load_flat(state.policy, "", parameters, values.span());
  collect::RunningMoments moments = me.encoder.moments();
  if (moments.size() > 0) load_moments("obs", state.normalizer, moments);
  std::ranges::copy(values.span(), parameters.flat().begin());
  me.encoder.moments() = std::move(moments);
  me.policy.model().parameters_changed();
}

}  // namespace shoal::learn
