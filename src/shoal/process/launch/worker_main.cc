#include "shoal/process/launch/worker_main.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "shoal/os/error.h"
#include "shoal/process/launch/program.h"

namespace shoal::process {
namespace {

namespace fs = std::filesystem;

void open_plugin(const std::string& path) {
  // Never closed: what the plug-in registered points into it.
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    throw Error(fmt::format("open the plug-in {}: {}", path, ::dlerror()));
  }
}

/// The file that this code is in: libshoal.so, or the program when linked statically.
fs::path own_folder() {
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(&native_interpreter), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  return fs::canonical(info.dli_fname, ignored).parent_path();
}

/// A plain worker has the default handler.
void let_interrupts_come() {
  sigset_t interrupts;
  ::sigemptyset(&interrupts);
  ::sigaddset(&interrupts, SIGINT);
  ::pthread_sigmask(SIG_UNBLOCK, &interrupts, nullptr);
}

}  // namespace

int worker_main(const EntryTable& entries) {
  try {
    Program program = Program::attach();
    let_interrupts_come();
    ForkHooks hooks;
    hooks.entries = entries;
    try {
      for (const std::string& plugin : program.setup().preload) open_plugin(plugin);
    } catch (...) {
      return program.fail(ErrorReport::from_current_exception());
    }
    return program.run(hooks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shoal-worker: %s\n", error.what());
    return 1;
  }
}

std::vector<std::string> native_interpreter() {
  if (const char* given = std::getenv("SHOAL_WORKER")) return {given};
  std::error_code ignored;
  std::vector<fs::path> candidates;
  for (const fs::path& folder :
       {own_folder(), fs::read_symlink("/proc/self/exe", ignored).parent_path()}) {
    if (folder.empty()) continue;
    for (const char* where : {"", "../libexec/shoal", "../bin"}) {
      candidates.push_back((folder / where / "shoal-worker").lexically_normal());
    }
  }
  std::vector<std::string> looked;
  for (const fs::path& candidate : candidates) {
    if (::access(candidate.c_str(), X_OK) == 0) return {candidate.string()};
    looked.push_back(candidate.string());
  }
  throw Error(fmt::format(
      "the program shoal-worker was not found; set SHOAL_WORKER to its path. Looked for: {}",
      fmt::join(looked, ", ")));
}

}  // namespace shoal::process
