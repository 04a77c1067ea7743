#include "shoal/process/self/fork_hazards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "shoal/process/self/gpu_use.h"
#include "shoal/process/self/loaded_libraries.h"
#include "shoal/process/self/no_fork.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::process {
namespace {

/// What a library is to a forked child, by how its file name begins.
struct KnownLibrary {
  std::string_view prefix;
  std::string_view what;
};
constexpr std::array kKnownLibraries{
    KnownLibrary{"libmpi.so", "MPI"},         KnownLibrary{"libmpi_", "MPI"},
    KnownLibrary{"libmpich.so", "MPI"},       KnownLibrary{"libopen-rte.so", "MPI"},
    KnownLibrary{"libibverbs.so", "ibverbs"},
};

std::string describe_threads(const std::vector<std::string>& threads) {
  constexpr std::size_t kShown = 8;
  const auto shown = std::vector<std::string>(
      threads.begin(),
      threads.begin() + static_cast<std::ptrdiff_t>(std::min(threads.size(), kShown)));
  return fmt::format(
      "{} other thread{} alive ({}{}); a lock that one of them holds stays locked in the child for "
      "ever",
      threads.size(), threads.size() == 1 ? " is" : "s are", fmt::join(shown, ", "),
      threads.size() > kShown ? ", …" : "");
}

}  // namespace

std::vector<std::string> fork_hazards(bool threads) {
  std::vector<std::string> hazards = reasons_against_fork();
  if (cuda_initialised()) {
    hazards.emplace_back(
        "CUDA is initialised in this process; its context cannot be used in a forked child");
  } else if (const auto gpu = gpu_in_use()) {
    hazards.push_back(fmt::format("{}; a GPU's state cannot be used in a forked child", *gpu));
  }
  if (threads) {
    const auto others = foreign_threads();
    if (!others.empty()) hazards.push_back(describe_threads(others));
  }
  std::set<std::string_view> named;
  for (const std::string& path : loaded_libraries()) {
    for (const auto& [prefix, what] : kKnownLibraries) {
      if (file_name(path).starts_with(prefix) && named.insert(what).second) {
        hazards.push_back(
            fmt::format("{} is loaded ({}), and does not survive a fork", what, path));
      }
    }
  }
  return hazards;
}

}  // namespace shoal::process
