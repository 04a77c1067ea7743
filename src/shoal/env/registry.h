// Environments by name: "shoal/CartPole-v1" -> a factory of batches.
//
// SHOAL_REGISTER_ENV (register_env.h) makes an environment known at load time; plug-ins (plugin.h)
// that the variable SHOAL_PLUGINS names are loaded by the first look-up.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/env/batch_env.h"
#include "shoal/env/env.h"

namespace shoal::env {

/// What is known of an id before anything is built.
struct EnvSpec {
  std::string id;
  int max_episode_steps = 0;                    // 0: no limit
  std::optional<double> reward_threshold = {};  // the mean return that counts as solved
};

/// Builds `count` environments. `args` is a JSON object of keyword arguments; the factory refuses
/// names it does not know. `max_episode_steps` is the limit in force (0: none): the spec's, or the
/// caller's own.
using BatchFactory = std::function<std::unique_ptr<BatchEnv>(int count, int max_episode_steps,
                                                             const nlohmann::json& args)>;

/// Makes `spec.id` known. Throws InvalidArgument when there is no factory, or the id is taken or not of the
/// form "name", "name-v0", "space/name-v0". In the static initialisers of a plug-in it throws nothing:
/// load_plugin() does, and takes back what the plug-in has registered.
void register_env(EnvSpec spec, BatchFactory factory);

/// Makes an Env class known under `spec.id`: it is built by its default constructor.
template <class E>
void register_env(EnvSpec spec);

/// All that is registered, by id.
std::vector<EnvSpec> registered_envs();

/// True when make_batch() knows `id`.
bool is_registered(std::string_view id);

/// Throws InvalidArgument naming the nearest ids when `id` is not registered.
EnvSpec find_env(std::string_view id);

/// Builds `count` environments of `id`. `args` is a JSON object: the environment's keyword
/// arguments, and, for every environment, "max_episode_steps" (-1: no limit; null: its own),
/// "frame_stack" (a number of observations), "episode_statistics" (true or false) and "reward_clip"
/// ([low, high]), see EpisodeOptions. Throws InvalidArgument for an unknown id or argument.
std::unique_ptr<BatchEnv> make_batch(std::string_view id, int count, std::string_view args = "{}");

/// A batch of `count` single environments, each made by `make_one`, with a time limit (0: none).
std::unique_ptr<BatchEnv> batch_of_envs(int count, int max_episode_steps,
                                        const std::function<std::unique_ptr<Env>()>& make_one);

namespace internal {
/// Of environments that take no arguments.
BatchFactory factory_of_batches(
    std::function<std::unique_ptr<BatchEnv>(int count, int max_episode_steps)> make);
BatchFactory factory_of_envs(std::function<std::unique_ptr<Env>()> make_one);
/// Takes back a registration of a plug-in that could not be loaded.
void unregister_env(std::string_view id);
}  // namespace internal

template <class E>
void register_env(EnvSpec spec) {
  register_env(std::move(spec), internal::factory_of_envs([] { return std::make_unique<E>(); }));
}

}  // namespace shoal::env
