// The line that makes an environment known when the program or plug-in that holds it is loaded.
//
//   SHOAL_REGISTER_ENV("mine/Coin-v0", Coin);
//   SHOAL_REGISTER_ENV("mine/Coin-v0", Coin, .max_episode_steps = 100);
//
// A library with such lines is a plug-in (plugin.h). It carries a mark that says which Shoal it was
// built for, which load_plugin() reads before it runs any of the library's code.
#pragma once

#include <cstdint>

#include "shoal/env/batch_env.h"
#include "shoal/env/env.h"
#include "shoal/env/registry.h"

namespace shoal::env {

/// What must agree between a plug-in and the Shoal that loads it. Lies in the plug-in's file as it
/// is.
struct PluginMark {
  char magic[16];
  std::uint32_t interface;  // number of what env/*.h declare; raised with every change to it
  std::uint32_t cxx11_abi;  // of the standard library's strings
  std::uint32_t sizes[4];   // of EnvSpec, Space, Env and BatchEnv
  bool operator==(const PluginMark&) const = default;
};

#ifdef _GLIBCXX_USE_CXX11_ABI
#define SHOAL_CXX11_ABI _GLIBCXX_USE_CXX11_ABI
#else
#define SHOAL_CXX11_ABI 0
#endif

[[gnu::used]] inline constexpr PluginMark kPluginMark{
    {'S', 'h', 'o', 'a', 'l', ' ', 'p', 'l', 'u', 'g', '-', 'i', 'n', ' ', 'i', 's'},
    3,
    SHOAL_CXX11_ABI,
    {sizeof(EnvSpec), sizeof(Space), sizeof(Env), sizeof(BatchEnv)}};

namespace internal {

/// register_env() for static initialisers. While a plug-in is being loaded a failure is kept for
/// load_plugin() to throw, since no exception may leave dlopen().
void register_env_at_load(EnvSpec spec, BatchFactory factory);

template <class E>
bool register_env_at_load(EnvSpec spec) {
  register_env_at_load(std::move(spec), factory_of_envs([] { return std::make_unique<E>(); }));
  return true;
}

}  // namespace internal
}  // namespace shoal::env

/// At namespace scope.
#define SHOAL_REGISTER_ENV(env_id, EnvClass, ...)                                         \
  static const bool SHOAL_ENV_JOIN(shoal_registered_env_, __COUNTER__) [[maybe_unused]] = \
      ::shoal::env::internal::register_env_at_load<EnvClass>(                             \
          {.id = env_id __VA_OPT__(, ) __VA_ARGS__})
#define SHOAL_ENV_JOIN(a, b) SHOAL_ENV_JOIN_(a, b)
#define SHOAL_ENV_JOIN_(a, b) a##b
