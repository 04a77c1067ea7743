#include "shoal/os/limits/cgroup.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

namespace shoal::os {
namespace {

namespace fs = std::filesystem;

bool has_item(const std::string& list, std::string_view wanted) {
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    if (item == wanted) return true;
  }
  return false;
}

/// One mounted hierarchy: where, and which directory of it the mount shows.
struct Hierarchy {
  fs::path mount;
  std::string shown;
};

/// From /proc/self/mountinfo: "id parent dev shown mount options [fields] - type source
/// super-options".
std::optional<Hierarchy> find_hierarchy(const std::string& controller, bool version2,
                                        const fs::path& root) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string id, parent, device, shown, mount, type, source, options;
    left >> id >> parent >> device >> shown >> mount;
    right >> type >> source >> options;
    if (version2 ? type == "cgroup2" : type == "cgroup" && has_item(options, controller)) {
      return Hierarchy{root / fs::path(mount).relative_path(), shown};
    }
  }
  return std::nullopt;
}

/// From /proc/self/cgroup: "number:controllers:path"; the controllers of version 2 are empty.
std::optional<std::string> find_group(const std::string& controller, bool version2,
                                      const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version2 ? controllers.empty() : has_item(controllers, controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// Where this process's group is in a hierarchy that is mounted.
struct MountedGroup {
  fs::path mount;
  fs::path inside;  // below it; empty: the mount point itself
};

std::optional<MountedGroup> mounted_group(const std::string& controller, bool version2,
                                          const fs::path& root) {
  const auto hierarchy = find_hierarchy(controller, version2, root);
  const auto group = find_group(controller, version2, root);
  if (!hierarchy || !group) return std::nullopt;
  // A mount of a part of the hierarchy shows the groups below `shown` only.
  std::string inside = *group;
  if (hierarchy->shown != "/" && inside.starts_with(hierarchy->shown)) {
    inside.erase(0, hierarchy->shown.size());
  }
  return MountedGroup{hierarchy->mount, fs::path(inside).relative_path()};
}

std::vector<fs::path> directories(const std::string& controller, bool version2,
                                  const fs::path& root) {
  const auto group = mounted_group(controller, version2, root);
  if (!group) return {};
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::path path = group->inside; !path.empty(); path = path.parent_path()) {
    if (fs::is_directory(group->mount / path, ignored)) found.push_back(group->mount / path);
  }
  found.push_back(group->mount);
  return found;
}

}  // namespace

std::optional<fs::path> own_cgroup_directory(const std::string& controller, const fs::path& root) {
  auto group = mounted_group(controller, false, root);
  if (!group) group = mounted_group(controller, true, root);
  if (!group) return std::nullopt;
  if (group->inside.empty()) return group->mount;
  std::error_code ignored;
  if (!fs::is_directory(group->mount / group->inside, ignored)) return std::nullopt;
  return group->mount / group->inside;
}

std::vector<fs::path> cgroup_directories(const std::string& controller, const fs::path& root) {
  auto found = directories(controller, false, root);
  return found.empty() ? directories(controller, true, root) : found;
}

std::optional<std::string> read_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  return line;
}

std::optional<long long> read_number(const fs::path& file) {
  const auto line = read_line(file);
  if (!line) return std::nullopt;
  long long value = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
  if (error != std::errc() || end != line->data() + line->size()) return std::nullopt;
  return value;
}

}  // namespace shoal::os
