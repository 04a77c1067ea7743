// Loads the part that uses LibTorch, once, when a network first needs it.
#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "shoal/env/space.h"
#include "shoal/learn/network/actor_critic.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using Make = ActorCritic* (*)(const Network&, const Parameters&);

constexpr const char* kLibrary = "libshoal_autograd.so";
constexpr const char* kMake = "shoal_make_autograd_actor_critic";

// It lies beside libshoal.so, which holds env::leaves().
std::string path_of_library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&env::leaves), &info) == 0 || info.dli_fname == nullptr)
    return kLibrary;
  const std::string libshoal = info.dli_fname;
  const auto slash = libshoal.rfind('/');
  return slash == std::string::npos ? kLibrary : libshoal.substr(0, slash + 1) + kLibrary;
}

// Stays loaded to the end of the process: LibTorch cannot be unloaded.
Make load() {
  const std::string path = path_of_library();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* make = library == nullptr ? nullptr : ::dlsym(library, kMake);
  if (make == nullptr) {
    throw InvalidState(
        fmt::format("load LibTorch, which this network needs (images, or fused = false), through "
                    "{}: {}; install the torch that Shoal was "
                    "built with beside it",
                    path, ::dlerror()));
  }
  return reinterpret_cast<Make>(make);
}

}  // namespace

std::unique_ptr<ActorCritic> make_autograd_actor_critic(const Network& network,
                                                        const Parameters& parameters) {
  static const Make make =
      load();  // a failure throws each time: a static that threw is tried again
  return std::unique_ptr<ActorCritic>(make(network, parameters));
}

}  // namespace shoal::learn
