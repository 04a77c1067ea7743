#include "shoal/process/worker_died.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/os/clock.h"

namespace shoal::process {
namespace {

std::string describe_envs(int first_env, int num_envs) {
  if (first_env < 0 || num_envs <= 0) return "";
  if (num_envs == 1) return fmt::format(", environment {}", first_env);
  return fmt::format(", environments {} to {}", first_env, first_env + num_envs - 1);
}

/// The last error report among the messages that nobody has read yet.
std::optional<ErrorReport> unread_report(Channel& channel) {
  std::optional<ErrorReport> report;
  if (!channel) return report;
  try {
    os::Message message;
    while (channel.recv(message, os::Clock::now()) == os::RecvOutcome::kMessage) {
      if (auto found = ErrorReport::decode(message.bytes)) report = std::move(found);
    }
  } catch (const Error&) {
    // A message that the dying process did not finish; its end is reported all the same.
  }
  return report;
}

}  // namespace

std::string DeathCertificate::headline() const {
  return fmt::format("{} (pid {}{}) ended with {}", worker, pid, describe_envs(first_env, num_envs),
                     status.describe());
}

std::string DeathCertificate::describe() const {
  std::string text = headline();
  if (cause.starts_with(text))
    text = cause;
  else if (!cause.empty())
    text += "\n" + cause;
  if (!stack.empty()) text += "\nIts stack:\n" + stack;
  while (text.ends_with('\n')) text.pop_back();
  if (report) text += "\nIt reported: " + report->describe();
  if (!log_tail.empty()) {
    text += "\nIts last lines of output:";
    for (const std::string& line : log_tail) text += "\n  | " + line;
  }
  return text;
}

DeathCertificate DeathCertificate::of(WorkerProcess& worker, std::chrono::milliseconds grace) {
  DeathCertificate certificate;
  certificate.worker = worker.name();
  certificate.index = worker.spec().index;
  certificate.first_env = worker.spec().first_env;
  certificate.num_envs = worker.spec().num_envs;
  certificate.pid = worker.pid();
  certificate.status = worker.join(grace).value_or(ExitStatus{.known = false});
  certificate.report = unread_report(worker.channel());
  certificate.log_tail = worker.log_tail();
  return certificate;
}

WorkerDied::WorkerDied(DeathCertificate certificate)
    : Error(certificate.describe()), certificate_(std::move(certificate)) {}

}  // namespace shoal::process
