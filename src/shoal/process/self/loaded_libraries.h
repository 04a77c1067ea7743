// The shared libraries of this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::process {

/// Paths of the libraries that are loaded now.
std::vector<std::string> loaded_libraries();

/// What follows the last slash.
std::string_view file_name(std::string_view path);

}  // namespace shoal::process
