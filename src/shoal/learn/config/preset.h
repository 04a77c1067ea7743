// One named set of configuration values, as an algorithm's room lists it.
#pragma once

#include <string_view>

namespace shoal::learn {

struct Preset {
  std::string_view name;
  std::string_view json;  // what differs from the algorithm's defaults
};

}  // namespace shoal::learn
