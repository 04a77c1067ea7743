// Environments from shared libraries that are loaded by path.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace shoal::env {

/// Loads the plug-in `path`, a shared library whose static initialisers register environments
/// (register_env.h), and returns their ids. A library that is loaded already is not loaded again. It stays loaded for
/// the life of the process, and worker processes that are started from now on load it too.
///
/// Throws InvalidArgument, with nothing registered, for a file that is not there, is cut off, is no
/// plug-in, was built for another Shoal, needs a symbol or library that is missing, or registers an
/// id that is taken; and for one that has changed since it was loaded.
///
/// `is_taken`: whether an id is one of somebody else's environments; called before any is registered.
std::vector<std::string> load_plugin(
    const std::filesystem::path& path,
    const std::function<bool(const std::string& id)>& is_taken = {});

/// The plug-ins of this process, by canonical path, in the order in which they were loaded. Logs it
/// once of each whose file has changed since.
std::vector<std::string> loaded_plugins();

/// Loads those of the variable SHOAL_PLUGINS (paths with colons between them), once. Every look-up
/// of an id calls this. Throws what load_plugin() throws, naming the variable; the next call tries
/// again.
void load_plugins_of_environment();

namespace internal {
/// Runs `add`, which registers `id`. While this thread loads a plug-in, the id is the plug-in's, and what
/// `add` throws is kept for load_plugin() to throw: no exception may leave dlopen().
void registering(const std::string& id, const std::function<void()>& add);
}  // namespace internal

}  // namespace shoal::env
