// shoal._core.pool: what shoal.multiprocessing.Pool schedules with.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "shoal/ipc/pool/task_job.h"
#include "shoal/ipc/pool/task_scheduler.h"
#include "shoal/ipc/pool/task_slot.h"
#include "shoal/os/error.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using ipc::TaskBytes;
using ipc::TaskJob;
using ipc::TaskScheduler;
using ipc::TaskSlot;
using Event = TaskScheduler::Event;

std::vector<ipc::Block> blocks_of(const nb::list& blocks) {
  std::vector<ipc::Block> found;
  for (const nb::handle block : blocks) found.push_back(nb::cast<const ipc::Block&>(block));
  return found;
}

using Outcome = std::tuple<std::uint32_t, bool, nb::bytes, std::optional<ipc::Block>>;

/// None: there is none, and none will come. Raises TimeoutError.
template <class Take>
std::optional<Outcome> take(std::optional<double> timeout, Take take) {
  TaskJob::Outcome outcome;
  TaskJob::Wait how = TaskJob::Wait::kTimedOut;
  interruptible(timeout, [&](os::Deadline until) {
    how = take(outcome, until);
    return how != TaskJob::Wait::kTimedOut;
  });
  if (how == TaskJob::Wait::kTimedOut) throw TimedOut("no result came in time");
  if (how == TaskJob::Wait::kExhausted) return std::nullopt;
  std::optional<ipc::Block> held;
  if (outcome.held) held = std::move(outcome.held);
  return Outcome{outcome.index, outcome.ok, to_bytes(outcome.bytes), std::move(held)};
}

void bind_job(nb::module_& module) {
  nb::class_<TaskJob>(module, "Job", "The outcomes of the tasks of one call.")
      .def(nb::new_([] { return std::make_shared<TaskJob>(); }))
      .def("finished", &TaskJob::finished)
      .def("first_failure", &TaskJob::first_failure,
           "The task whose failure came first; None while there is none.")
      .def(
          "wait",
          [](const TaskJob& job, std::optional<double> timeout) {
            return interruptible(timeout, [&](os::Deadline until) { return job.wait(until); });
          },
          "timeout"_a = nb::none(), "Waits for all outcomes; returns whether they are there.")
      .def(
          "take",
          [](TaskJob& job, std::uint32_t index, std::optional<double> timeout) {
            return take(timeout, [&](TaskJob::Outcome& outcome, os::Deadline until) {
              return job.take(index, outcome, until);
            });
          },
          "index"_a, "timeout"_a = nb::none(),
          "(index, whether it returned, pickle, what holds the blocks that it names), once; None "
          "when "
          "there is no such task.")
      .def(
          "take_any",
          [](TaskJob& job, std::optional<double> timeout) {
            return take(timeout, [&](TaskJob::Outcome& outcome, os::Deadline until) {
              return job.take_any(outcome, until);
            });
          },
          "timeout"_a = nb::none(), "As take(), of the outcome that came first.");
}

void bind_event(nb::module_& module) {
  nb::enum_<Event::Kind>(module, "EventKind")
      .value("DIED", Event::kDied)
      .value("BROKEN", Event::kBroken)
      .value("NOTIFY", Event::kNotify)
      .value("FINISHED", Event::kFinished)
      .value("NOTHING", Event::kNothing);
  nb::class_<Event>(module, "Event", "What the pool's owner has to look after.")
      .def_ro("kind", &Event::kind)
      .def_ro("slot", &Event::slot)
      .def_ro("ready", &Event::ready, "DIED: it had begun to work.")
      .def_ro("retired", &Event::retired, "DIED: it was to leave.")
      .def_ro("blamed", &Event::blamed, "DIED: it had begun a task that has no outcome.")
      .def_ro("ticket", &Event::ticket)
      .def_prop_ro("bytes", [](const Event& event) { return to_bytes(event.bytes); });
}

void bind_scheduler(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<TaskScheduler>(module, "Scheduler",
                            "Which task goes to which worker, and what is outstanding.")
      .def(nb::init<int, std::size_t>(), "slots"_a,
           "ring_bytes"_a = ipc::TaskSegment::kDefaultRingBytes)
      .def_prop_ro("segment_fd", &TaskScheduler::segment_fd)
      .def("prepare", &TaskScheduler::prepare, "slot"_a, "quota"_a, Release(),
           "Before a worker is started; quota: tasks that it may do, 0 for any number.")
      .def("occupy", &TaskScheduler::occupy, "slot"_a, "pid"_a, Release(), "After it was started.")
      .def("shelf", &TaskScheduler::shelf, "slot"_a,
           "Where its worker keeps results that name blocks until they arrive.")
      .def("vacate", &TaskScheduler::vacate, "slot"_a, Release(), "It could not be started.")
      .def("open", &TaskScheduler::open, "job"_a, Release())
      .def(
          "add",
          [](TaskScheduler& scheduler, const std::shared_ptr<TaskJob>& job, std::uint32_t index,
             const nb::bytes& payload, const nb::list& blocks) {
            TaskBytes bytes = to_vector(payload);
            std::vector<ipc::Block> held = blocks_of(blocks);
            const nb::gil_scoped_release unlocked;
            return scheduler.add(job, index, std::move(bytes), std::move(held));
          },
          "job"_a, "index"_a, "payload"_a, "blocks"_a = nb::list(),
          "`blocks`: those that the payload names. False: the pool was stopped.")
      .def(
          "put",
          [](TaskScheduler& scheduler, const std::shared_ptr<TaskJob>& job, std::uint32_t index,
             bool ok, const nb::bytes& payload) {
            TaskBytes bytes = to_vector(payload);
            const nb::gil_scoped_release unlocked;
            scheduler.put(job, {index, ok, std::move(bytes)});
          },
          "job"_a, "index"_a, "ok"_a, "payload"_a, "The outcome of a task that is not sent.")
      .def("seal", &TaskScheduler::seal, "job"_a, "length"_a, "ticket"_a = 0, Release(),
           "No more tasks; with a ticket there is a NOTIFY once all are done.")
      .def(
          "wait_for_room",
          [](const TaskScheduler& scheduler, std::size_t bytes) {
            interruptible(std::nullopt, [&](os::Deadline until) {
              return scheduler.wait_for_room(bytes, until);
            });
          },
          "bytes"_a, "Waits until tasks that no worker was given have at most so many bytes.")
      .def(
          "pump",
          [](TaskScheduler& scheduler, std::optional<double> timeout) {
            return scheduler.pump(deadline(timeout));
          },
          "timeout"_a = nb::none(), Release(), "Keeps the pool going until there is an event.")
      .def(
          "bury",
          [](TaskScheduler& scheduler, int slot, const nb::bytes& error) {
            TaskBytes bytes = to_vector(error);
            const nb::gil_scoped_release unlocked;
            return scheduler.bury(slot, bytes);
          },
          "slot"_a, "error"_a,
          "After DIED: the outcome of the task that it had begun; returns whether another worker "
          "is wanted.")
      .def("close", &TaskScheduler::close, Release())
      .def(
          "stop",
          [](TaskScheduler& scheduler, const nb::bytes& error) {
            TaskBytes bytes = to_vector(error);
            const nb::gil_scoped_release unlocked;
            scheduler.stop(bytes);
          },
          "error"_a, "What has no outcome gets this one.");
}

void bind_slot(nb::module_& module) {
  nb::class_<TaskSlot>(module, "Slot", "A worker's end.")
      .def(
          "__init__",
          [](TaskSlot* self, int fd, int index, const std::optional<ipc::Block>& shelf) {
            new (self) TaskSlot(os::Fd(fd), index, shelf.value_or(ipc::Block()));
          },
          "fd"_a, "index"_a, "shelf"_a = nb::none(), "Takes over the descriptor of the segment.")
      .def(
          "next",
          [](TaskSlot& slot) -> std::optional<std::pair<std::uint64_t, nb::bytes>> {
            for (;;) {
              auto outcome = TaskSlot::Outcome::kTimedOut;
              interruptible(std::nullopt, [&](os::Deadline until) {
                outcome = slot.wait(until);
                return outcome != TaskSlot::Outcome::kTimedOut;
              });
              if (outcome == TaskSlot::Outcome::kStopped) return std::nullopt;
              const auto task = slot.begin();
              if (!task) continue;
              nb::object bytes = nb::steal(
                  PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(task->total_bytes)));
              if (!bytes.is_valid()) throw nb::python_error();
              auto* data = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr()));
              {
                const nb::gil_scoped_release unlocked;
                outcome = slot.read({data, static_cast<std::size_t>(task->total_bytes)});
              }
              if (outcome == TaskSlot::Outcome::kStopped) return std::nullopt;
              return std::pair{task->tag, nb::cast<nb::bytes>(bytes)};
            }
          },
          "(tag, pickle) of the next task, which has begun; None: leave.")
      .def(
          "send",
          [](TaskSlot& slot, ipc::TaskReport report, std::uint64_t tag, const nb::bytes& payload) {
            const nb::gil_scoped_release unlocked;
            return slot.send(report, tag, view(payload)) == TaskSlot::Outcome::kReady;
          },
          "report"_a, "tag"_a, "payload"_a, "False: the pool is gone.")
      .def(
          "send_done",
          [](TaskSlot& slot, std::uint64_t tag, const nb::bytes& payload, const nb::list& blocks) {
            std::vector<ipc::Offset> named;
            for (const nb::handle block : blocks) {
              named.push_back(nb::cast<const ipc::Block&>(block).offset());
            }
            const nb::gil_scoped_release unlocked;
            return slot.send_done(tag, view(payload), named) == TaskSlot::Outcome::kReady;
          },
          "tag"_a, "payload"_a, "blocks"_a,
          "What a task returned, and the blocks that its pickle names; False: the pool is gone.");
  nb::enum_<ipc::TaskReport>(module, "Report")
      .value("READY", ipc::TaskReport::kReady)
      .value("DONE", ipc::TaskReport::kDone)
      .value("RAISED", ipc::TaskReport::kRaised)
      .value("CANNOT_BEGIN", ipc::TaskReport::kCannotBegin);
}

}  // namespace

void bind_pool(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("pool");
  bind_job(module);
  bind_event(module);
  bind_scheduler(module);
  bind_slot(module);
}

}  // namespace shoal::python
