// shoal._learn: the directory of a run, for runs that Python drives.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <filesystem>
#include <string>
#include <utility>

#include "learn/learn_bindings.h"
#include "shoal/learn/run/run_directory.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using learn::RunDirectory;

void append_progress(RunDirectory& directory, std::int64_t step, double seconds,
                     const nb::dict& values) {
  learn::ScalarRecord record{.step = step, .seconds = seconds, .values = {}};
  for (const auto& [name, value] : values) {
    record.values.emplace_back(nb::cast<std::string>(name), nb::cast<double>(value));
  }
  const nb::gil_scoped_release unlocked;
  directory.append_progress(record);
}

}  // namespace

void bind_learn_directory(nb::module_& module) {
  nb::class_<RunDirectory>(module, "RunDirectory")
      .def(
          "__init__",
          [](RunDirectory* directory, std::filesystem::path path, bool resume) {
            const nb::gil_scoped_release unlocked;
            new (directory) RunDirectory(
                std::move(path), resume ? RunDirectory::Mode::kResume : RunDirectory::Mode::kNew);
          },
          "path"_a, "resume"_a)
      .def_prop_ro("path", &RunDirectory::path)
      .def_prop_ro("last", &RunDirectory::last)
      .def_prop_ro("best", &RunDirectory::best)
      .def(
          "write_config",
          [](const RunDirectory& directory, const std::string& config_json) {
            directory.write_config(parse_json(config_json, "the description of the run"));
          },
          "config_json"_a)
      .def(
          "write_result",
          [](const RunDirectory& directory, const std::string& result_json) {
            directory.write_result(parse_json(result_json, "the result"));
          },
          "result_json"_a)
      .def("start_progress", &RunDirectory::start_progress, "step"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("append_progress", &append_progress, "step"_a, "seconds"_a, "values"_a,
           nb::sig("def append_progress(self, step: int, seconds: float, values: dict[str, float]) "
                   "-> None"))
      .def("release", &RunDirectory::release);
}

}  // namespace shoal::python
