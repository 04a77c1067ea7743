// shoal._core.process: who this worker is, the ports it leases, and what its group shares.
#include "shoal/process/identity/identity.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bytes.h"
#include "shoal/process/identity/gpu_lease.h"
#include "shoal/process/identity/welcome.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using process::GpuLease;
using process::Identity;
using process::PortLease;
using process::SharedState;

/// A counter that keeps its table.
struct SharedCounter {
  std::shared_ptr<SharedState> shared_state;
  shm::Counter counter;
};

/// What `with` makes of an IdentityScope.
class Scope {
 public:
  Scope(Identity identity, int env) : identity_(std::move(identity)), env_(env) {}
  void enter() {
    scope_.emplace(identity_);
    identity_.enter(env_);
  }
  void exit() { scope_.reset(); }

 private:
  Identity identity_;
  int env_;
  std::optional<process::IdentityScope> scope_;
};

nb::object get_value(const SharedState& shared_state, std::string_view name) {
  std::optional<process::SharedValue> value;
  {
    const nb::gil_scoped_release unlocked;
    value = shared_state.values().get(name);
  }
  if (!value) return nb::none();
  return nb::make_tuple(to_bytes(value->bytes), value->version);
}

bool set_values(const SharedState& shared_state,
                const std::vector<std::pair<std::string, nb::bytes>>& values,
                std::optional<std::uint64_t> expected) {
  std::vector<process::NamedBytes> all;
  for (const auto& [name, bytes] : values) all.push_back({name, view(bytes)});
  const nb::gil_scoped_release unlocked;
  return shared_state.values().set(all, expected);
}

nb::object env_of(int env) { return env < 0 ? nb::none() : nb::object(nb::int_(env)); }

void bind_shared_state(nb::module_& module) {
  nb::class_<SharedCounter>(module, "Counter",
                            "A whole number that all workers of a group and their parent add to.")
      .def_prop_ro("name",
                   [](const SharedCounter& self) { return std::string(self.counter.name()); })
      .def_prop_ro("value", [](const SharedCounter& self) { return self.counter.value(); })
      .def(
          "add", [](SharedCounter& self, std::int64_t n) { return self.counter.add(n); }, "n"_a = 1,
          "Adds n (which may be negative) at once for all; returns the new value, which no other "
          "add(1) of this counter returns.")
      .def("get", [](const SharedCounter& self) { return self.counter.value(); })
      .def(
          "set", [](SharedCounter& self, std::int64_t n) { self.counter.set(n); }, "value"_a,
          "Forgets what was added before.")
      .def("__int__", [](const SharedCounter& self) { return self.counter.value(); })
      .def("__repr__", [](const SharedCounter& self) {
        return "Counter(" + std::string(self.counter.name()) + "=" +
               std::to_string(self.counter.value()) + ")";
      });
  nb::class_<SharedState>(module, "SharedState",
                          "What the workers of a group share with their parent.")
      .def_static("create", &SharedState::create, "value_bytes"_a = SharedState::kValueBytes)
      .def(
          "counter",
          [](std::shared_ptr<SharedState> self, std::string_view name) {
            return SharedCounter{self, self->counter(name)};
          },
          "name"_a)
      .def("counters", &SharedState::counters)
      .def("get_value", &get_value, "name"_a, "(bytes, version), or None.")
      .def("set_values", &set_values, "values"_a, "expected"_a = nb::none(),
           "All or none. With `expected`, only if the first one is of that version (0: not there).")
      .def(
          "erase_value",
          [](const SharedState& self, std::string_view name,
             std::optional<std::uint64_t> expected) { return self.values().erase(name, expected); },
          "name"_a, "expected"_a = nb::none(), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "value_names", [](const SharedState& self) { return self.values().names(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "clear_values", [](const SharedState& self) { self.values().clear(); },
          nb::call_guard<nb::gil_scoped_release>());
}

PortLease lease(const Identity& identity, const std::string& kind, std::optional<int> first,
                std::optional<int> last) {
  process::PortRange range = process::PortRange::standard();
  if (first) range.first = *first;
  if (last) range.last = *last;
  return identity.lease_port(range,
                             kind == "udp" ? process::PortKind::kUdp : process::PortKind::kTcp);
}

void bind_worker_identity(nb::module_& module) {
  nb::class_<PortLease>(module, "PortLease")
      .def_prop_ro("port", &PortLease::port)
      .def_prop_ro("held", [](const PortLease& self) { return static_cast<bool>(self); })
      .def("release", &PortLease::release);
  nb::class_<GpuLease>(module, "GpuLease",
                       "The GPU that the fewest workers of the machine have, for one more of them.")
      .def(
          "__init__",
          [](GpuLease* self, const std::vector<std::string>& devices) {
            new (self) GpuLease(GpuLease::take(devices));
          },
          "devices"_a)
      .def_prop_ro("device", &GpuLease::device)
      .def_prop_ro("held", [](const GpuLease& self) { return static_cast<bool>(self); })
      .def("release", &GpuLease::release);
  nb::class_<Identity>(module, "Identity", "A worker; two that are equal are the same.")
      .def(
          "__init__",
          [](Identity* self, int index, int num_workers, int first_env, int num_envs,
             std::shared_ptr<SharedState> shared_state) {
            new (self) Identity({.index = index,
                                 .num_workers = num_workers,
                                 .first_env = first_env,
                                 .num_envs = num_envs},
                                std::move(shared_state));
          },
          nb::kw_only(), "index"_a = 0, "num_workers"_a = 1, "first_env"_a = 0, "num_envs"_a = 0,
          "shared_state"_a = nb::none())
      .def_prop_ro("key", &Identity::key)
      .def_prop_ro("index", [](const Identity& self) { return self.place().index; })
      .def_prop_ro("num_workers", [](const Identity& self) { return self.place().num_workers; })
      .def_prop_ro("first_env", [](const Identity& self) { return self.place().first_env; })
      .def_prop_ro("num_envs", [](const Identity& self) { return self.place().num_envs; })
      .def_prop_ro("is_worker", [](const Identity& self) { return self.place().is_worker; })
      .def_prop_ro("env_index", [](const Identity& self) { return env_of(self.env_index()); })
      .def("enter", &Identity::enter, "env"_a)
      .def("leave", &Identity::leave)
      .def("seed", &Identity::seed, "env"_a)
      .def("set_seed", &Identity::set_seed, "env"_a, "seed"_a.none())
      .def_prop_ro("shared_state", &Identity::shared_state)
      .def("lease_port", &lease, "kind"_a, "first"_a = nb::none(), "last"_a = nb::none(),
           nb::call_guard<nb::gil_scoped_release>());
  nb::class_<Scope>(module, "IdentityScope", "Code inside is that worker's, in this thread.")
      .def(nb::init<Identity, int>(), "identity"_a, "env"_a = Identity::kNoEnv)
      .def("__enter__", &Scope::enter)
      .def("__exit__", [](Scope& self, nb::args) { self.exit(); });
}

}  // namespace

void bind_identity(nb::module_& parent) {
  nb::module_ module = nb::cast<nb::module_>(parent.attr("process"));
  bind_shared_state(module);
  bind_worker_identity(module);
  module.def("this_worker", &process::this_worker);
  module.def(
      "this_worker_key", [] { return process::this_worker().key(); },
      "Identity.key of this_worker(), without an object for it.");
  module.def(
      "this_worker_env", [] { return std::max(0, process::this_worker().env_index()); },
      "env_index of this_worker(), 0 where it has none.");
  module.def("become", &process::become, "identity"_a.none(),
             "From here on this process is that worker.");
  module.def("receive_welcome", &process::receive_welcome, "context"_a,
             nb::call_guard<nb::gil_scoped_release>(),
             "Who this worker is; None when its parent is gone.");
}

}  // namespace shoal::python
