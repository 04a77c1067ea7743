// The line that makes an environment known when the program or plug-in that holds it is loaded.
//
//   SHOAL_REGISTER_ENV("mine/Coin-v0", Coin);
//   SHOAL_REGISTER_ENV("mine/Coin-v0", Coin, .max_episode_steps = 100);
//
// The class is an Env (env.h) or a PlainEnv (batch_of.h) with a default constructor. Where a factory does more, as
// for a BatchEnv of one's own or for arguments, a static initialiser calls register_env() (registry.h).
//
// A library with such lines is a plug-in (plugin.h). It carries a mark that says which Shoal it was
// built for, which load_plugin() reads before it runs any of the library's code.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include "shoal/env/batch_env.h"
#include "shoal/env/batch_of.h"
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
    4,
    SHOAL_CXX11_ABI,
    {sizeof(EnvSpec), sizeof(Space), sizeof(Env), sizeof(BatchEnv)}};

namespace internal {

template <class E>
bool register_env_at_load(EnvSpec spec) {
  if constexpr (std::derived_from<E, Env>) {
    register_env<E>(std::move(spec));
  } else {
    register_env(std::move(spec), factory_of_batches([](int count, int max_episode_steps) {
                   return std::make_unique<BatchOf<E>>(count, max_episode_steps, E{});
                 }));
  }
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
