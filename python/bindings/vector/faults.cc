#include "vector/faults.h"

#include <nanobind/stl/string.h>

#include <chrono>
#include <map>
#include <string>

#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

std::chrono::milliseconds seconds(const nb::dict& policy, const char* key) {
  return milliseconds(nb::cast<double>(policy[key]));
}

nb::object text(std::string_view value) { return nb::str(value.data(), value.size()); }

}  // namespace

vector::FaultPolicy fault_policy(const nb::dict& policy) {
  const auto on_fault = nb::cast<std::string>(policy["on_fault"]);
  vector::FaultPolicy result;
  result.on_fault = on_fault == "restart" ? vector::OnFault::kRestart
                    : on_fault == "drop"  ? vector::OnFault::kDrop
                                          : vector::OnFault::kRaise;
  result.max_restarts = nb::cast<int>(policy["max_restarts"]);
  result.restart_window = seconds(policy, "restart_window");
  result.backoff = seconds(policy, "backoff");
  result.max_backoff = seconds(policy, "max_backoff");
  result.start_timeout = seconds(policy, "start_timeout");
  result.reset_timeout = seconds(policy, "reset_timeout");
  result.step_timeout = seconds(policy, "step_timeout");
  return result;
}

nb::object fault_to_python(const vector::FaultRecord& fault) {
  nb::object signal = nb::none(), exitcode = nb::none(), seed = nb::none(), step = nb::none();
  if (fault.status && fault.status->known) {
    if (fault.status->signal != 0) {
      signal = nb::int_(fault.status->signal);
    } else {
      exitcode = nb::int_(fault.status->code);
    }
  }
  std::string action;
  if (fault.report) {
    if (fault.report->last_seed) seed = nb::int_(*fault.report->last_seed);
    if (fault.report->episode_step >= 0) step = nb::int_(fault.report->episode_step);
    action = fault.report->last_action;
  }
  nb::object env = fault.env >= 0 ? nb::object(nb::int_(fault.env)) : nb::none();
  return nb::module_::import_("shoal.vector.faults")
      .attr("Fault")("kind"_a = text(name(fault.kind)), "message"_a = fault.message,
                     "number"_a = fault.number, "worker"_a = fault.worker, "env"_a = env,
                     "pid"_a = fault.pid, "restarts"_a = fault.restarts, "signal"_a = signal,
                     "exitcode"_a = exitcode, "seed"_a = seed, "action"_a = action,
                     "episode_step"_a = step, "details"_a = fault.details);
}

nb::list faults(const vector::VectorEnv& envs) {
  nb::list result;
  std::map<const vector::FaultRecord*, nb::object> made;  // rows of one fault share one object
  for (const vector::RowFaultRecord& row : envs.faults()) {
    nb::object& fault = made[row.fault.get()];
    if (!fault) fault = fault_to_python(*row.fault);
    result.append(nb::make_tuple(row.row, fault));
  }
  return result;
}

nb::list health(const vector::VectorEnv& envs) {
  nb::list workers;
  for (const vector::WorkerHealth& worker : envs.health()) {
    nb::dict entry, kinds;
    for (int kind = 0; kind < vector::kFaultKinds; ++kind) {
      const auto at = static_cast<std::size_t>(kind);
      kinds[text(name(static_cast<vector::FaultKind>(kind)))] = worker.faults[at];
    }
    entry["pid"] = worker.pid > 0 ? nb::object(nb::int_(worker.pid)) : nb::none();
    entry["state"] = text(name(worker.state));
    entry["first_env"] = worker.first_env;
    entry["num_envs"] = worker.num_envs;
    entry["env"] = worker.env >= 0 ? nb::object(nb::int_(worker.env)) : nb::none();
    entry["since"] = std::chrono::duration<double>(worker.since).count();
    entry["rss"] = worker.rss_bytes;
    entry["restarts"] = worker.restarts;
    entry["recycles"] = worker.recycles;
    entry["last_fault"] =
        worker.last_fault ? fault_to_python(*worker.last_fault) : nb::object(nb::none());
    entry["faults"] = kinds;
    workers.append(entry);
  }
  return workers;
}

}  // namespace shoal::python
