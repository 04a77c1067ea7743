#include "shoal/process/supervise/supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/process/supervise/orphans.h"

namespace shoal::process {
namespace {

/// The status of a child of this process that has ended.
ExitStatus collect(int pidfd) {
  try {
    const os::PidFd process{os::Fd::duplicate(pidfd)};
    if (const auto end = process.reap()) return {.code = end->code, .signal = end->signal};
  } catch (const SystemError&) {
    // Somebody else in this process waited for all children (os.wait()), or SIGCHLD is ignored.
  }
  return {.known = false};
}

}  // namespace

Supervisor::Supervisor(bool relay_output, std::function<void(int pid)> on_worker_end)
    : on_worker_end_(std::move(on_worker_end)) {
  if (!relay_output) return;
  output_ = std::make_shared<OutputSink>(loop_, STDOUT_FILENO);
  errors_ = std::make_shared<OutputSink>(loop_, STDERR_FILENO);
}

Supervisor::~Supervisor() {
  loop_.call([this] {
    end_left_sessions();
    watched_.clear();
  });
}

std::function<void(std::string_view)> Supervisor::line_handler(const std::string& tag,
                                                               LogTail& tail,
                                                               std::shared_ptr<OutputSink> sink) {
  return [&tail, tag, sink = std::move(sink)](std::string_view line) {
    tail.append(std::string(line));
    if (!sink) return;
    if (auto said = os::parse_log_line(line)) {
      said->who = tag;
      if (os::pass_on_log(*said)) return;
    }
    sink->write_line(tag, line);
  };
}

OutputReaders Supervisor::read_output(const std::string& tag, LogTail& tail, os::Fd output,
                                      os::Fd errors) {
  return {std::make_unique<LineReader>(loop_, std::move(output), line_handler(tag, tail, output_)),
          std::make_unique<LineReader>(loop_, std::move(errors), line_handler(tag, tail, errors_))};
}

void Supervisor::adopt(std::shared_ptr<WorkerRecord> record, os::Fd output, os::Fd errors) {
  WorkerRecord* key = record.get();
  OutputReaders readers =
      read_output(key->spec().name, key->tail(), std::move(output), std::move(errors));
  watched_.emplace(key, Watched{std::move(record), std::move(readers), {}, {}});
}

void Supervisor::adopt(std::shared_ptr<WorkerRecord> record) {
  WorkerRecord* key = record.get();
  const std::string& tag = key->spec().name;
  LineSplitter output(line_handler(tag, key->tail(), output_));
  LineSplitter errors(line_handler(tag, key->tail(), errors_));
  watched_.emplace(key, Watched{std::move(record), {}, std::move(output), std::move(errors)});
}

void Supervisor::take_output(WorkerRecord& record, int stream, std::string_view piece) {
  const auto found = watched_.find(&record);
  if (found == watched_.end()) return;
  auto& lines = stream == STDERR_FILENO ? found->second.errors : found->second.output;
  if (lines) lines->add(piece);
}

void Supervisor::watch_child(const std::shared_ptr<WorkerRecord>& record, bool leads_session) {
  const int pidfd = record->pidfd();
  loop_.watch(pidfd, POLLIN, [this, record, pidfd, leads_session] {
    if (leads_session) {
      if (left_sessions_.empty()) loop_.after(kOrphanGrace, [this] { end_left_sessions(); });
      left_sessions_.push_back(record->pid());
    }
    finish(record, collect(pidfd));
  });
}

void Supervisor::end_left_sessions() {
  end_sessions(left_sessions_);
  left_sessions_.clear();
}

void Supervisor::finish(const std::shared_ptr<WorkerRecord>& record, ExitStatus status) {
  const auto found = watched_.find(record.get());
  if (found == watched_.end()) return;
  if (const int pidfd = record->pidfd(); pidfd >= 0) loop_.unwatch(pidfd);
  found->second.readers.finish();
  if (found->second.output) found->second.output->finish();
  if (found->second.errors) found->second.errors->finish();
  watched_.erase(found);
  if (on_worker_end_) on_worker_end_(record->pid());
  record->set_ended(status);
}

void Supervisor::abandon(const std::shared_ptr<WorkerRecord>& record) {
  watched_.erase(record.get());
}

}  // namespace shoal::process
