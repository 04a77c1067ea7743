#include "shoal/env/plugin.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "shoal/env/register_env.h"
#include "shoal/os/error.h"

namespace shoal::env {
namespace {

namespace fs = std::filesystem;

struct Plugin {
  std::string path;
  std::vector<std::string> ids;
};

/// What the static initialisers of the library that this thread loads have done so far.
struct Loading {
  std::vector<std::string> ids;
  std::string failure;
};
thread_local Loading* loading = nullptr;

/// The one list of plug-ins of this process. Never destroyed: their code stays.
struct Plugins {
  std::recursive_mutex mutex;  // a plug-in may load another
  std::vector<Plugin> all;     // these two are guarded by mutex
  bool environment_done = false;
};

Plugins& plugins() {
  static Plugins* const the = new Plugins;
  return *the;
}

std::optional<PluginMark> mark_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::string_view magic(kPluginMark.magic, sizeof kPluginMark.magic);
  const std::size_t at = bytes.find(magic);
  if (at == std::string::npos || bytes.size() - at < sizeof(PluginMark)) return {};
  PluginMark mark;
  std::memcpy(&mark, bytes.data() + at, sizeof mark);
  return mark;
}

void check_file(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw InvalidArgument(
        fmt::format("there is no file {}: has the plug-in been built?", path.native()));
  }
  if (!fs::is_regular_file(path, error)) {
    throw InvalidArgument(fmt::format("{} is no shared library", path.native()));
  }
  const std::optional<PluginMark> mark = mark_of(path);
  if (!mark) {
    throw InvalidArgument(
        fmt::format("{} is no Shoal plug-in: it registers nothing with SHOAL_REGISTER_ENV "
                    "(shoal/env/register_env.h)",
                    path.native()));
  }
  if (mark->interface != kPluginMark.interface) {
    throw InvalidArgument(
        fmt::format("{} was built for interface {} of Shoal, this one has {}: build it again "
                    "against this Shoal",
                    path.native(), mark->interface, kPluginMark.interface));
  }
  if (*mark != kPluginMark) {
    throw InvalidArgument(fmt::format(
        "{} was built with another compiler, standard library or headers than this Shoal: build it "
        "again with the same",
        path.native()));
  }
}

/// dlerror(), with C++ names as their authors wrote them.
std::string loader_message() {
  const char* const text = ::dlerror();
  std::string message = text == nullptr ? "unknown error" : text;
  constexpr std::string_view kUndefined = "undefined symbol: ";
  const std::size_t at = message.find(kUndefined);
  if (at == std::string::npos) return message;
  const std::size_t begin = at + kUndefined.size();
  const std::string symbol = message.substr(begin, message.find_first_of(" \t\n", begin) - begin);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) return message;
  return fmt::format("it needs {}, which neither it nor Shoal defines (undefined symbol {})",
                     name.get(), symbol);
}

Plugin open(const std::string& path) {
  Loading here;
  Loading* const outer = std::exchange(loading, &here);
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  loading = outer;
  const std::string failure =
      handle == nullptr       ? fmt::format("cannot load {}: {}", path, loader_message())
      : !here.failure.empty() ? fmt::format("{}: {}", path, here.failure)
      : here.ids.empty()
          ? fmt::format(
                "{} registered nothing here: it is linked with another copy of Shoal than this "
                "program",
                path)
          : "";
  if (failure.empty()) return {path, std::move(here.ids)};
  for (const std::string& id : here.ids) internal::unregister_env(id);
  if (handle != nullptr) ::dlclose(handle);
  throw InvalidArgument(failure);
}

}  // namespace

std::vector<std::string> load_plugin(const fs::path& path) {
  check_file(path);
  const std::string canonical = fs::canonical(path).native();
  Plugins& known = plugins();
  const std::lock_guard lock(known.mutex);
  for (const Plugin& plugin : known.all) {
    if (plugin.path == canonical) return plugin.ids;
  }
  Plugin plugin = open(canonical);
  known.all.push_back(plugin);
  return plugin.ids;
}

std::vector<std::string> loaded_plugins() {
  Plugins& known = plugins();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> paths;
  for (const Plugin& plugin : known.all) paths.push_back(plugin.path);
  return paths;
}

void load_plugins_of_environment() {
  Plugins& known = plugins();
  const std::lock_guard lock(known.mutex);
  if (known.environment_done || loading != nullptr) return;
  const char* const variable = std::getenv("SHOAL_PLUGINS");
  const std::string_view all = variable == nullptr ? "" : variable;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(':', begin), all.size());
    const std::string_view path = all.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    try {
      load_plugin(path);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("SHOAL_PLUGINS: {}", error.what()));
    }
  }
  known.environment_done = true;
}

void internal::register_env_at_load(EnvSpec spec, BatchFactory factory) {
  if (loading == nullptr) {
    register_env(std::move(spec), std::move(factory));
    return;
  }
  try {
    const std::string id = spec.id;
    register_env(std::move(spec), std::move(factory));
    loading->ids.push_back(id);
  } catch (const std::exception& error) {
    if (loading->failure.empty()) loading->failure = error.what();
  }
}

}  // namespace shoal::env
