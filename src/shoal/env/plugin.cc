#include "shoal/env/plugin.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

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
#include "shoal/env/registry.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::env {
namespace {

namespace fs = std::filesystem;

/// Which file a path leads to, as it is now.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileStamp&) const = default;

  static FileStamp of(const std::string& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return {};
    constexpr std::int64_t kNsPerS = 1'000'000'000;
    return {status.st_dev, status.st_ino, status.st_size,
            status.st_mtim.tv_sec * kNsPerS + status.st_mtim.tv_nsec};
  }
};

struct Plugin {
  std::string path;
  std::vector<std::string> ids;
  FileStamp stamp;    // of what was loaded
  bool told = false;  // that the file has changed since
};

/// What the static initialisers of the library that this thread loads have registered so far.
struct Loading {
  const std::function<bool(const std::string&)>& is_taken;
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

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Whether the file ends before what its headers say that it has: the loader would map what is not there.
bool is_cut_off(const std::string& bytes) {
  ElfW(Ehdr) header;
  if (bytes.size() < sizeof header) return true;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;  // the loader says so
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    const std::size_t at = header.e_phoff + i * sizeof segment;
    if (at > bytes.size() || bytes.size() - at < sizeof segment) return true;
    std::memcpy(&segment, bytes.data() + at, sizeof segment);
    if (segment.p_filesz > bytes.size() || segment.p_offset > bytes.size() - segment.p_filesz) {
      return true;
    }
  }
  return false;
}

std::optional<PluginMark> mark_of(const std::string& bytes) {
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
  const std::string bytes = bytes_of(path);
  const std::optional<PluginMark> mark = mark_of(bytes);
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
  if (is_cut_off(bytes)) {
    throw InvalidArgument(fmt::format(
        "{} is cut off: it has {} bytes, fewer than its headers say; build or copy it again",
        path.native(), bytes.size()));
  }
}

/// Whether this Shoal's library has `symbol`.
bool is_ours(const char* symbol) {
  Dl_info here;
  if (::dladdr(reinterpret_cast<const void*>(&check_file), &here) == 0) return false;
  void* const self = ::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (self == nullptr) return false;
  const bool found = ::dlsym(self, symbol) != nullptr;
  ::dlclose(self);
  return found;
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
  if (is_ours(symbol.c_str())) {
    return fmt::format(
        "it is not linked with Shoal, whose {} it needs: target_link_libraries(… PRIVATE "
        "shoal::shoal)",
        status == 0 ? name.get() : symbol.c_str());
  }
  if (status != 0) return message;
  return fmt::format("it needs {}, which neither it nor Shoal defines (undefined symbol {})",
                     name.get(), symbol);
}

/// Why a library has registered nothing: with a Shoal in it, it did so there.
std::string why_nothing(void* handle) {
  using Register = void (*)(EnvSpec, BatchFactory);
  const Register ours = &register_env;
  Dl_info here;
  const bool is_known =
      ::dladdr(reinterpret_cast<const void*>(ours), &here) != 0 && here.dli_sname != nullptr;
  void* const theirs = is_known ? ::dlsym(handle, here.dli_sname) : nullptr;
  return theirs == nullptr || theirs == reinterpret_cast<const void*>(ours)
             ? "registers nothing: it has no SHOAL_REGISTER_ENV line"
             : "registered nothing here: it is linked with another copy of Shoal than this program";
}

Plugin open(const std::string& path, const std::function<bool(const std::string&)>& is_taken) {
  const FileStamp stamp = FileStamp::of(path);
  Loading here{is_taken, {}, {}};
  Loading* const outer = std::exchange(loading, &here);
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  loading = outer;
  const std::string failure = handle == nullptr
                                  ? fmt::format("cannot load {}: {}", path, loader_message())
                              : !here.failure.empty() ? fmt::format("{}: {}", path, here.failure)
                              : here.ids.empty() ? fmt::format("{} {}", path, why_nothing(handle))
                                                 : "";
  if (failure.empty()) return {path, std::move(here.ids), stamp};
  for (const std::string& id : here.ids) internal::unregister_env(id);
  if (handle != nullptr) ::dlclose(handle);
  throw InvalidArgument(failure);
}

}  // namespace

std::vector<std::string> load_plugin(const fs::path& path,
                                     const std::function<bool(const std::string&)>& is_taken) {
  check_file(path);
  const std::string canonical = fs::canonical(path).native();
  Plugins& known = plugins();
  const std::lock_guard lock(known.mutex);
  for (const Plugin& plugin : known.all) {
    if (plugin.path != canonical) continue;
    if (plugin.stamp == FileStamp::of(canonical)) return plugin.ids;
    throw InvalidArgument(
        fmt::format("{} has changed since this program loaded it, and what is loaded stays: start "
                    "the program again",
                    canonical));
  }
  Plugin plugin = open(canonical, is_taken);
  known.all.push_back(plugin);
  return plugin.ids;
}

std::vector<std::string> loaded_plugins() {
  Plugins& known = plugins();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> paths;
  for (Plugin& plugin : known.all) {
    paths.push_back(plugin.path);
    if (plugin.told || plugin.stamp == FileStamp::of(plugin.path)) continue;
    plugin.told = true;
    os::log(os::LogLevel::kWarning, "env",
            "{} has changed since this program loaded it: workers that start from now on run other "
            "code than this "
            "program; start the program again",
            plugin.path);
  }
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

void internal::registering(const std::string& id, const std::function<void()>& add) {
  if (loading == nullptr) return add();
  try {
    if (loading->is_taken && loading->is_taken(id)) {
      throw InvalidArgument(
          fmt::format("Gymnasium has an environment \"{}\" of its own: register another id", id));
    }
    add();
    loading->ids.push_back(id);
  } catch (const std::exception& error) {
    if (loading->failure.empty()) loading->failure = error.what();
  }
}

}  // namespace shoal::env
