#include "shoal/vector/fault/fault_account.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

namespace shoal::vector {
namespace {

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string mib(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// One line of a report.
std::string headline(const process::ErrorReport& report) {
  std::string text = report.env_index >= 0 ? fmt::format("environment {}", report.env_index) : "it";
  text += fmt::format(" raised {}", report.type);
  if (!report.message.empty()) text += ": " + report.message.substr(0, report.message.find('\n'));
  if (report.episode_step >= 0)
    text += fmt::format(" (step {} of its episode", std::int64_t{report.episode_step} + 1);
  if (report.episode_step >= 0 && !report.last_action.empty())
    text += ", action " + report.last_action;
  if (report.episode_step >= 0 && report.last_seed)
    text += fmt::format(", last seed {}", *report.last_seed);
  return report.episode_step >= 0 ? text + ")" : text;
}

FaultRecord record_of(const FaultScene& scene, FaultKind kind, int env) {
  return {.kind = kind,
          .worker = scene.worker,
          .env = env,
          .first_env = scene.first_env,
          .num_envs = scene.num_envs,
          .pid = scene.pid,
          .status = {},
          .message = {},
          .details = {},
          .report = {}};
}

}  // namespace

KillReason KillReason::hang(int env, int first_env, int num_envs, bool in_reset,
                            std::chrono::milliseconds limit) {
  const char* const call = in_reset ? "reset" : "step";
  const std::string who =
      env >= 0 || num_envs == 1
          ? fmt::format("environment {}", env >= 0 ? env : first_env)
          : fmt::format("one of environments {} to {}", first_env, first_env + num_envs - 1);
  return {.kind = FaultKind::kHang,
          .env = env,
          .message = fmt::format("{} did not finish its {} within {:g} s ({}_timeout)", who, call,
                                 seconds(limit), call),
          .stack = {}};
}

KillReason KillReason::hung_start(const std::string& worker,
                                  std::chrono::milliseconds start_timeout) {
  return {.kind = FaultKind::kHang,
          .env = -1,
          .message = fmt::format("{} did not build its environments within {:g} s (start_timeout)",
                                 worker, seconds(start_timeout)),
          .stack = {}};
}

KillReason KillReason::over_limit(const std::string& worker, std::uint64_t bytes,
                                  std::uint64_t limit, int env) {
  return {.kind = FaultKind::kMemory,
          .env = env,
          .message = fmt::format(
              "{} uses {} of memory, and memory_hard_limit is {} (by default twice memory_limit)",
              worker, mib(bytes), mib(limit)),
          .stack = {}};
}

std::string FaultScene::describe() const { return describe_worker(name, first_env, num_envs); }

std::optional<std::string> OomEvidence::of(const process::ExitStatus& status) {
  if (!status.zygote) return status.signal == SIGKILL ? watch_.evidence() : std::nullopt;
  if (std::exchange(zygote_, status.zygote) != status.zygote) {
    found_ = status.zygote->status.signal == SIGKILL ? watch_.evidence() : std::nullopt;
  }
  return found_;
}

FaultRecord account_of_death(const FaultScene& scene, const process::DeathCertificate& certificate,
                             int env, const KillReason* reason, OomEvidence& oom_evidence) {
  FaultRecord record = record_of(scene, FaultKind::kKilled, env);
  record.pid = certificate.pid;
  record.status = certificate.status;
  record.report = certificate.report;
  if (reason != nullptr) {
    record.kind = reason->kind;
    record.env = reason->env;
    record.message = fmt::format("{}; its worker was killed", reason->message);
    if (!reason->stack.empty()) record.details += "Its stack:\n" + reason->stack;
  } else if (certificate.report) {
    record.kind = FaultKind::kException;
    record.env = certificate.report->env_index;
    record.message = headline(*certificate.report);
  } else {
    const auto& status = certificate.status;
    record.message = !certificate.cause.empty() ? certificate.cause
                     : env >= 0 ? fmt::format("{} in environment {}", certificate.headline(), env)
                                : certificate.headline();
    if (status.known && status.signal == 0) record.kind = FaultKind::kExit;
    record.cause = status.zygote;
    if (const auto evidence = oom_evidence.of(status)) {
      record.kind = FaultKind::kMemory;
      record.message += fmt::format("; the kernel killed {} for want of memory, as it seems: {}",
                                    status.zygote ? "the zygote" : "it", *evidence);
    }
  }
  if (certificate.report) record.details += certificate.report->traceback;
  for (const std::string& line : certificate.log_tail) record.details += "\n  | " + line;
  return record;
}

FaultRecord account_of_failure(const FaultScene& scene, process::ErrorReport report) {
  FaultRecord record = record_of(scene, FaultKind::kException, report.env_index);
  record.first_env = report.env_index;
  record.num_envs = 1;
  record.message = headline(report);
  record.details = report.traceback;
  record.report = std::move(report);
  return record;
}

FaultRecord account_of_failed_start(const FaultScene& scene, const char* what,
                                    process::ErrorReport report) {
  FaultRecord record = record_of(scene, FaultKind::kException, report.env_index);
  record.message = fmt::format("the replacement of {} {}: {}: {}", scene.describe(), what,
                               report.type, report.message);
  record.details = report.traceback;
  record.report = std::move(report);
  return record;
}

FaultRecord account_of_failed_start(const FaultScene& scene) {
  FaultRecord record = account_of_failed_start(scene, "could not be started",
                                               process::ErrorReport::from_current_exception());
  try {
    throw;
  } catch (const process::StartFailed& error) {
    record.cause = error.zygote();
  } catch (...) {
    // It failed by itself.
  }
  return record;
}

FaultRecord account_of_hung_start(const FaultScene& scene, std::chrono::milliseconds start_timeout,
                                  const std::string& stack) {
  FaultRecord record = record_of(scene, FaultKind::kHang, -1);
  record.message = fmt::format(
      "the replacement of {} did not build its environments within {:g} s (start_timeout); it was "
      "killed",
      scene.describe(), seconds(start_timeout));
  record.details = "Its stack:\n" + stack;
  return record;
}

std::string account_of_late_start(const std::string& late, std::chrono::milliseconds start_timeout,
                                  const std::string& stack) {
  return fmt::format("{} (start_timeout={:g} s). Its stack:\n{}", late, seconds(start_timeout),
                     stack);
}

void complete(process::DeathCertificate& certificate, const FaultRecord& record,
              const KillReason* reason) {
  certificate.cause = record.message;
  if (reason != nullptr) certificate.stack = reason->stack;
  certificate.kind = name(record.kind);
}

std::string describe_worker(const std::string& name, int first_env, int num_envs) {
  if (num_envs == 1) return fmt::format("{} (environment {})", name, first_env);
  return fmt::format("{} (environments {} to {})", name, first_env, first_env + num_envs - 1);
}

// One round of splitmix64.
std::uint64_t renewal_seed(std::uint64_t seed, int restarts) noexcept {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15 * static_cast<std::uint64_t>(restarts + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return (x ^ (x >> 31)) >> 1;  // below 2**63, which every generator takes
}

}  // namespace shoal::vector
