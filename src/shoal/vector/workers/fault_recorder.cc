#include "shoal/vector/workers/fault_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "shoal/os/log.h"

namespace shoal::vector {

FaultRecorder::FaultRecorder(const FaultPolicy& policy, int num_envs, CallState& state,
                             HealthTable& health)
    : policy_(policy),
      state_(state),
      health_(health),
      ledger_(policy, num_envs),
      last_of_(static_cast<std::size_t>(num_envs)) {}

FaultRecord FaultRecorder::account(int worker, const FaultScene& scene,
                                   process::DeathCertificate certificate, int env,
                                   const KillReason* reason) {
  FaultRecord record = account_of_death(scene, certificate, env, reason, oom_evidence_);
  if (policy_.on_fault != OnFault::kRaise) return record;
  health_.count_fault(worker, std::make_shared<const FaultRecord>(record));
  complete(certificate, record, reason);
  state_.fail(fmt::format("{} died ({})", scene.describe(), certificate.status.describe()));
  throw process::WorkerDied(std::move(certificate));
}

Fault FaultRecorder::admit(int worker, FaultRecord record) {
  const int first_env = record.first_env;
  const int num_envs = record.num_envs;
  const std::string message = record.message;
  try {
    Fault fault = ledger_.admit(std::move(record));
    health_.count_fault(worker, fault);
    os::log(os::LogLevel::kInfo, "vector", "{}", message);
    std::fill_n(last_of_.begin() + first_env, num_envs, fault);
    return fault;
  } catch (const TooManyFaults& error) {
    const std::string text = error.what();
    state_.fail(fmt::format("{} {}", text.substr(0, text.find('\n')), message));
    health_.count_fault(worker, error.faults().back());
    throw;
  }
}

process::RemoteError FaultRecorder::failure(const FaultScene& scene, process::ErrorReport report) {
  state_.fail(fmt::format("{} failed: {}: {}", scene.describe(), report.type, report.message));
  return {scene.name, std::move(report)};
}

}  // namespace shoal::vector
