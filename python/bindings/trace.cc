// shoal._core.trace: what processes are busy with, and when; of this one, and of others.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bindings.h"
#include "numpy_api.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/trace/capture.h"
#include "shoal/trace/chrome_json.h"
#include "shoal/trace/recorder.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

/// A ring holds four times what the fastest environments record in this time; each look takes a CPU
/// from a worker, where all of them are in use.
constexpr std::chrono::milliseconds kBetweenPolls{20};

bool add(trace::Capture& capture, int fd) {
  os::Fd copy(::dup(fd));
  if (!copy) throw SystemError("copy the descriptor of a recorder");
  return capture.add(std::move(copy));
}

bool listen(trace::Capture& capture, double seconds) {
  return interruptible(seconds, [&](os::Deadline until) {
    bool room = capture.poll();
    while (room && os::Clock::now() < until) {
      std::this_thread::sleep_for(
          std::min<std::chrono::nanoseconds>(kBetweenPolls, os::time_left(until)));
      room = capture.poll();
    }
    return !room;  // else it goes on
  });
}

template <class Value, class Take>
nb::object column(const std::vector<trace::Event>& events, shm::DType dtype, Take take) {
  nb::object array =
      shoal::python::new_array(shm::TensorSpec{dtype, {static_cast<std::int64_t>(events.size())}});
  auto* to = static_cast<Value*>(array_data(array));
  for (const trace::Event& event : events) *to++ = static_cast<Value>(take(event));
  return array;
}

nb::list processes(const trace::Capture& capture) {
  ensure_numpy();
  nb::list all;
  for (const trace::CapturedProcess& process : capture.processes()) {
    const auto& events = process.events;
    nb::dict made;
    made["pid"] = process.pid;
    made["name"] = process.name;
    made["lost"] = process.lost;
    made["span"] = column<std::uint8_t>(events, shm::DType::kU8,
                                        [](const trace::Event& event) { return event.span; });
    made["thread"] = column<std::int64_t>(events, shm::DType::kI64,
                                          [](const trace::Event& event) { return event.thread; });
    made["arg"] = column<std::int64_t>(events, shm::DType::kI64,
                                       [](const trace::Event& event) { return event.arg; });
    made["start_ns"] = column<std::int64_t>(
        events, shm::DType::kI64, [](const trace::Event& event) { return event.start_ns; });
    made["duration_ns"] = column<std::int64_t>(
        events, shm::DType::kI64, [](const trace::Event& event) { return event.duration_ns; });
    all.append(made);
  }
  return all;
}

}  // namespace

void bind_trace(nb::module_& parent) {
  nb::module_ module =
      parent.def_submodule("trace", "What processes are busy with, for `shoal trace`.");
  nb::class_<trace::Capture>(module, "Capture", "Listens to the recorders of processes.")
      .def(nb::init<>())
      .def("add", &add, "fd"_a,
           "Listens to this recorder, too. False: it does already, or its process has ended.")
      .def("listen", &listen, "seconds"_a,
           "Keeps what is recorded for so long. True: there is no room for more.")
      .def("stop", &trace::Capture::stop, nb::call_guard<nb::gil_scoped_release>(),
           "Listens no longer, and takes the rest.")
      .def_prop_ro("listeners", &trace::Capture::listeners, "To how many it listens.")
      .def("processes", &processes,
           "Of each its `pid`, `name`, how many events were `lost`, and of the events arrays: "
           "`span` (an index of SPANS), `thread`, `arg`, `start_ns`, `duration_ns`.")
      .def(
          "write",
          [](const trace::Capture& capture, const std::string& path, std::uint64_t origin_ns) {
            trace::write_chrome_json(path, capture.processes(), origin_ns);
          },
          "path"_a, "origin_ns"_a, nb::call_guard<nb::gil_scoped_release>(),
          "The timeline as a file for ui.perfetto.dev; times count from `origin_ns`.");
  nb::list names;
  for (int span = 0; span < static_cast<int>(trace::Span::kCount); ++span) {
    names.append(nb::str(trace::name_of(static_cast<trace::Span>(span))));
  }
  module.attr("SPANS") = names;
  module.attr("NAME") = trace::kRecorderName;
  module.def(
      "open", [](const std::string& name) { trace::open(name); }, "name"_a = "",
      "Gives this process a recorder; `name` is what it is called in a timeline.");
}

}  // namespace shoal::python
