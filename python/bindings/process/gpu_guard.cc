#include "process/gpu_guard.h"

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/process/identity/identity.h"
#include "shoal/process/self/gpu_use.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

constexpr int kFirstLooks = 4;                         // a reset and some steps
constexpr std::uint64_t kLookAgainNs = 1'000'000'000;  // a look takes some 20 µs
constexpr std::size_t kRemembered = 4;                 // attempts
constexpr int kFrames = 12;                            // of a stack

struct Guard {
  bool on = false;
  bool remembering = false;  // the code that formats a stack is audited too
  int looks = 0;
  std::uint64_t looked_ns = 0;
  std::vector<std::string> attempts;
};
Guard guard;

/// The first argument of an audited call as text; empty where it is none.
std::string argument(PyObject* args, Py_ssize_t i) {
  PyObject* const given =
      PyTuple_Check(args) && PyTuple_GET_SIZE(args) > i ? PyTuple_GET_ITEM(args, i) : nullptr;
  if (given == nullptr) return {};
  if (PyBytes_Check(given)) return PyBytes_AS_STRING(given);
  const char* const text = PyUnicode_Check(given) ? PyUnicode_AsUTF8(given) : nullptr;
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? std::string() : std::string(text);
}

/// What the audited call does about GPUs; empty for nothing.
std::string attempt(std::string_view event, PyObject* args) {
  if (event == "os.putenv") {
    const std::string name = argument(args, 0), value = argument(args, 1);
    const bool shows = !value.empty() && value != "-1" && value != "NoDevFiles";
    const bool of_gpus = name == "CUDA_VISIBLE_DEVICES" || name == "HIP_VISIBLE_DEVICES" ||
                         name == "ROCR_VISIBLE_DEVICES";
    return shows && of_gpus ? fmt::format("{}={} was set", name, value) : std::string();
  }
  if (event == "ctypes.dlopen") {
    const std::string path = argument(args, 0);
    const std::string name = path.substr(path.rfind('/') + 1);
    const bool of_gpus = name.starts_with("libcuda") || name.starts_with("libamdhip");
    return of_gpus ? fmt::format("{} was loaded", path) : std::string();
  }
  if (event == "open") {
    const std::string path = argument(args, 0);
    const bool of_gpus = path.starts_with("/dev/nvidia") || path == "/dev/kfd";
    return of_gpus ? fmt::format("{} was opened", path) : std::string();
  }
  return {};
}

std::string stack() {
  const nb::object lines =
      nb::module_::import_("traceback").attr("format_stack")("limit"_a = kFrames);
  return nb::cast<std::string>(nb::str("").attr("join")(lines));
}

void remember(std::string_view event, PyObject* args) {
  const std::string what = attempt(event, args);
  if (what.empty() || guard.attempts.size() == kRemembered) return;
  guard.attempts.push_back(fmt::format("{} here:\n{}", what, stack()));
}

// Never fails the audited call: it is watched, not judged.
int audit(const char* event, PyObject* args, void*) {
  if (guard.remembering || args == nullptr) return 0;
  if (std::strcmp(event, "open") != 0 && std::strcmp(event, "os.putenv") != 0 &&
      std::strcmp(event, "ctypes.dlopen") != 0) {
    return 0;
  }
  guard.remembering = true;
  try {
    remember(event, args);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("an audit hook of Shoal");
  } catch (...) {
    PyErr_Clear();
  }
  guard.remembering = false;
  return 0;
}

}  // namespace

void forbid_gpu() {
  if (std::exchange(guard.on, true)) return;
  if (PySys_AddAuditHook(&audit, nullptr) < 0) throw nb::python_error();
}

void check_gpu() {
  if (!guard.on) return;
  guard.looked_ns = os::coarse_now_ns();
  const auto use = process::gpu_in_use();
  if (!use) return;
  std::string message = fmt::format(
      "an environment of worker {} uses a GPU although its workers were to hold none: {}. Keep it "
      "on the CPU, or give the workers GPUs with worker=shoal.WorkerOptions(gpu=\"own\") or "
      "gpu=\"lease\"",
      process::this_worker().place().index, *use);
  for (const std::string& attempt : guard.attempts) message += "\n" + attempt;
  throw InvalidState(message);
}

void check_gpu_now_and_then() {
  if (!guard.on) return;
  if (guard.looks < kFirstLooks) {
    ++guard.looks;
  } else if (os::coarse_now_ns() - guard.looked_ns < kLookAgainNs) {
    return;
  }
  check_gpu();
}

void bind_gpu_guard(nb::module_& parent) {
  nb::module_ module = nb::cast<nb::module_>(parent.attr("process"));
  module.def("forbid_gpu", &forbid_gpu,
             "From now on this process holds no GPU; who tries is remembered with the stack.");
  module.def("check_gpu", &check_gpu,
             "RuntimeError where the process uses a GPU though it is forbidden, with the stacks of "
             "who tried.");
}

}  // namespace shoal::python
