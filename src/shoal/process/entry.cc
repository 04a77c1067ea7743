#include "shoal/process/entry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "shoal/os/error.h"

namespace shoal::process {

void EntryTable::add(std::string name, Entry entry) {
  if (entries_.contains(name)) {
    throw InvalidArgument(fmt::format("a worker entry named '{}' exists already", name));
  }
  entries_.emplace(std::move(name), std::move(entry));
}

const Entry& EntryTable::at(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries_) names.push_back(known);
  throw InvalidArgument(
      fmt::format("this program has no worker entry '{}'; it has: {}", name,
                  names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace shoal::process
