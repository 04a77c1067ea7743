#include "process/worker_options.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/os/error.h"

namespace nb = nanobind;

namespace shoal::python {

void set_worker_options(vector::Options& options, const nb::dict& workers) {
  for (const auto& [key, value] : workers) {
    const auto name = nb::cast<std::string>(key);
    if (name == "pin_workers") {
      options.pin_workers = nb::cast<bool>(value);
    } else if (name == "cpus") {
      options.cpus = nb::cast<std::vector<std::vector<int>>>(value);
    } else if (name == "memory_limit") {
      options.memory_limit = nb::cast<std::uint64_t>(value);
    } else if (name == "memory_hard_limit") {
      options.memory_hard_limit = nb::cast<std::uint64_t>(value);
    } else if (name == "gpus") {
      options.setup.gpus = nb::cast<std::vector<std::string>>(value);
    } else if (name == "nested") {
      options.setup.nested = nb::cast<bool>(value);
    } else {
      throw InvalidArgument("unknown option of workers: " + name);
    }
  }
}

}  // namespace shoal::python
