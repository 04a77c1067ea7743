// shoal._core.synchronize: locks, semaphores, events, conditions and barriers of the family, as
// shoal.multiprocessing.synchronize wants them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "bindings.h"
#include "shoal/ipc/sync/barrier.h"
#include "shoal/ipc/sync/condition.h"
#include "shoal/ipc/sync/event.h"
#include "shoal/ipc/sync/lock.h"
#include "shoal/ipc/sync/semaphore.h"
#include "shoal/os/clock.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using ipc::Acquisition;
using ipc::Block;
using ipc::OwnerDeath;
using sync::WaitOutcome;

/// `wait(until) -> WaitOutcome`; long turns, for many may wait at once, and for long.
template <class Wait, class Interrupted>
bool wait_interruptibly(std::optional<double> timeout, Wait wait, Interrupted interrupted) {
  return interruptible(
      timeout, std::chrono::milliseconds(200),
      [&](os::Deadline until) { return wait(until) == WaitOutcome::kReady; }, interrupted);
}

/// Tells the Python side that a thing was had from a dead owner; it warns, or raises.
void tell(nb::handle self, pid_t dead, bool keep) { self.attr("_owner_died")(dead, keep); }

template <class T>
bool acquire(nb::handle self, nb::object block, std::optional<double> timeout) {
  T& thing = *nb::inst_ptr<T>(self);
  if (thing.try_acquire()) return true;
  Acquisition result;
  if (nb::cast<bool>(nb::bool_(block))) {
    wait_interruptibly(
        timeout,
        [&](os::Deadline until) {
          result = thing.acquire(until);
          return result.outcome;
        },
        [] {});
  } else {
    result = thing.acquire_now();
  }
  if (result.dead != 0) tell(self, result.dead, false);
  return result.outcome == WaitOutcome::kReady;
}

void release_lock(ipc::Lock& lock) {
  switch (lock.release()) {
    case ipc::ReleaseOutcome::kReleased:
      return;
    case ipc::ReleaseOutcome::kFree:
      throw nb::value_error("semaphore or lock released too many times");
    case ipc::ReleaseOutcome::kNotOwner:
      PyErr_SetString(PyExc_AssertionError,
                      "attempt to release recursive lock not owned by thread");
      throw nb::python_error();
  }
}

void release_permit(ipc::Semaphore& permits) {
  if (!permits.release()) throw nb::value_error("semaphore or lock released too many times");
}

/// What lock and semaphore have in common.
template <class T, class Release>
void bind_acquirable(nb::class_<T>& type, Release release) {
  type.def("acquire", &acquire<T>, "block"_a = true, "timeout"_a = nb::none(),
           "Waits for it, `timeout` seconds at most; a negative timeout is 0. Whether it was had.")
      .def("release", release)
      .def("__enter__",
           [](nb::handle self) { return acquire<T>(self, nb::bool_(true), std::nullopt); })
      .def("__exit__", [release](T& self, nb::args) { release(self); })
      .def_prop_ro("block", &T::block)
      .def_prop_ro("on_owner_died",
                   [](const T& self) { return static_cast<std::uint32_t>(self.on_death()); });
}

void bind_lock(nb::module_& module) {
  using ipc::Lock;
  nb::class_<Lock> type(module, "Lock", nb::is_weak_referenceable());
  type.def(
      "__init__",
      [](Lock* self, bool recursive, std::uint32_t on_owner_died) {
        new (self) Lock(recursive, static_cast<OwnerDeath>(on_owner_died));
      },
      "recursive"_a, "on_owner_died"_a);
  type.def("__init__", [](Lock* self, const Block& block) { new (self) Lock(block); }, "block"_a);
  bind_acquirable(type, release_lock);
  type.def_prop_ro("recovered", &Lock::recovered,
                   "Whether whoever has it has it from a dead owner.")
      .def_prop_ro("recursive", &Lock::recursive)
      .def("_is_mine", &Lock::is_mine)
      .def("_is_this_process", &Lock::is_this_process)
      .def("_is_zero", [](const Lock& self) { return !self.is_free(); })
      .def("_get_value", [](const Lock& self) { return self.is_free() ? 1 : 0; })
      .def("_count", [](const Lock& self) { return self.is_this_process() ? self.depth() : 0u; });
}

void bind_semaphore(nb::module_& module) {
  using ipc::Semaphore;
  nb::class_<Semaphore> type(module, "Semaphore", nb::is_weak_referenceable());
  type.def(
      "__init__",
      [](Semaphore* self, std::int64_t value, std::int64_t maximum, std::uint32_t on_owner_died) {
        if (value < 0 || maximum < value || maximum > Semaphore::kMaxValue)
          throw nb::value_error("the value of a semaphore is from 0 to 2147483647");
        new (self) Semaphore(static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(maximum),
                             static_cast<OwnerDeath>(on_owner_died));
      },
      "value"_a, "maxvalue"_a, "on_owner_died"_a);
  type.def(
      "__init__", [](Semaphore* self, const Block& block) { new (self) Semaphore(block); },
      "block"_a);
  bind_acquirable(type, release_permit);
  type.def_prop_ro("maxvalue", &Semaphore::maximum)
      .def("_get_value", &Semaphore::value)
      .def("_is_zero", [](const Semaphore& self) { return self.value() == 0; })
      .def("_count", &Semaphore::held,
           "How many permits this process has taken and not given back.");
}

void bind_event(nb::module_& module) {
  using ipc::Event;
  nb::class_<Event>(module, "Event", nb::is_weak_referenceable())
      .def(nb::init<>())
      .def(
          "__init__", [](Event* self, const Block& block) { new (self) Event(block); }, "block"_a)
      .def_prop_ro("block", &Event::block)
      .def("is_set", &Event::is_set)
      .def("set", &Event::set)
      .def("clear", &Event::clear)
      .def(
          "wait",
          [](Event& self, std::optional<double> timeout) {
            const std::uint32_t sets = self.sets();
            if (self.is_set()) return true;
            return wait_interruptibly(
                timeout, [&](os::Deadline until) { return self.wait(sets, until); }, [] {});
          },
          "timeout"_a = nb::none(),
          "Waits until it is set, `timeout` seconds at most. Whether it was.");
}

bool wait_for_notification(ipc::Condition& condition, nb::handle lock_object,
                           std::optional<double> timeout) {
  auto& lock = nb::cast<ipc::Lock&>(lock_object);
  static_cast<void>(deadline(timeout));  // throws for nan, before anything is changed
  const auto at = condition.enter();
  const std::uint32_t depth = lock.release_all();
  // However the wait ends, the caller has its lock again.
  const auto take_back = [&] {
    Acquisition taken;
    const nb::gil_scoped_release unlocked;
    while (taken.outcome != WaitOutcome::kReady) taken = lock.acquire();
    lock.restore_depth(depth);
    return taken.dead;
  };
  wait_interruptibly(
      timeout, [&](os::Deadline until) { return condition.sleep(at, until); },
      [&] {
        // The notification that the exception keeps this one from is another's.
        if (condition.leave(at)) condition.notify(1);
        take_back();
      });
  const bool notified = condition.leave(at);
  if (const pid_t dead = take_back(); dead != 0) tell(lock_object, dead, true);
  return notified;
}

void bind_condition(nb::module_& module) {
  using ipc::Condition;
  nb::class_<Condition>(module, "Condition", nb::is_weak_referenceable())
      .def(nb::init<>())
      .def(
          "__init__", [](Condition* self, const Block& block) { new (self) Condition(block); },
          "block"_a)
      .def_prop_ro("block", &Condition::block)
      .def("wait", &wait_for_notification, "lock"_a, "timeout"_a = nb::none(),
           "Lets go of the lock, which this thread has, until notified; then has it again. Whether "
           "it was notified.")
      .def(
          "notify",
          [](Condition& self, std::int64_t count) {
            return self.notify(static_cast<std::uint32_t>(
                std::clamp<std::int64_t>(count, 0, std::int64_t{0xffff'ffff})));
          },
          "count"_a, "Notifies waiters, first come, first served; returns how many.")
      .def("waiting", &Condition::waiting);
}

void bind_barrier(nb::module_& module) {
  using ipc::Barrier;
  nb::class_<Barrier>(module, "Barrier", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](Barrier* self, std::int64_t parties) {
            if (parties < 1 || parties > Barrier::kMaxParties)
              throw nb::value_error("the parties of a barrier are from 1 to 16384");
            new (self) Barrier(static_cast<std::uint32_t>(parties));
          },
          "parties"_a)
      .def(
          "__init__", [](Barrier* self, const Block& block) { new (self) Barrier(block); },
          "block"_a)
      .def_prop_ro("block", &Barrier::block)
      .def(
          "arrive",
          [](Barrier& self) {
            const sync::Arrival arrival = self.arrive();
            return nb::make_tuple(static_cast<int>(arrival.kind), arrival.round, arrival.index);
          },
          "(kind, round, index): kind 0: wait(round); 1: the last, complete(round); 2: "
          "wait(round), "
          "then arrive again; 3: it is broken.")
      .def("complete", &Barrier::complete, "round"_a)
      .def(
          "wait",
          [](Barrier& self, std::uint32_t round, std::optional<double> timeout) {
            const bool over = wait_interruptibly(
                timeout, [&](os::Deadline until) { return self.wait(round, until); },
                [&] { self.abandon(round); });
            if (!over) self.abandon(round);
            return self.state(round) == sync::RoundState::kComplete;
          },
          "round"_a, "timeout"_a = nb::none(),
          "Whether the round was completed; one that times out is broken.")
      .def("abort", &Barrier::abort)
      .def("reset", &Barrier::reset)
      .def("leave", &Barrier::leave)
      .def_prop_ro("broken", &Barrier::broken)
      .def_prop_ro("culprit", &Barrier::culprit,
                   "The process id of the party whose death broke it; 0 where none did, -1 where "
                   "it is not known any more.")
      .def_prop_ro("parties", &Barrier::parties)
      .def_prop_ro("arrived", &Barrier::arrived);
}

}  // namespace

void bind_synchronize(nb::module_& parent) {
  nb::module_ module = parent.def_submodule(
      "synchronize", "Locks and their kin in the heap that a family of processes shares.");
  bind_lock(module);
  bind_semaphore(module);
  bind_event(module);
  bind_condition(module);
  bind_barrier(module);
}

}  // namespace shoal::python
