#include "shoal/process/supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "shoal/os/error.h"

namespace shoal::process {
namespace {

constexpr ExitStatus kUnknownStatus{.code = 0, .signal = 0, .known = false};

/// Of a child of this process that has ended.
ExitStatus collect(int pidfd) {
  try {
    const os::PidFd process{os::Fd::duplicate(pidfd)};
    if (const auto end = process.reap()) return {.code = end->code, .signal = end->signal};
  } catch (const SystemError&) {
    // Somebody else in this process waited for all children (os.wait()), or SIGCHLD is ignored.
  }
  return kUnknownStatus;
}

}  // namespace

Supervisor::Supervisor(bool relay_output) {
  if (!relay_output) return;
  output_ = std::make_shared<OutputSink>(loop_, STDOUT_FILENO);
  errors_ = std::make_shared<OutputSink>(loop_, STDERR_FILENO);
}

Supervisor::~Supervisor() {
  loop_.call([this] { watched_.clear(); });
}

OutputReaders Supervisor::read_output(const std::string& tag, LogTail& tail, os::Fd output,
                                      os::Fd errors) {
  const auto reader = [&](os::Fd pipe, const std::shared_ptr<OutputSink>& sink) {
    return std::make_unique<LineReader>(loop_, std::move(pipe),
                                        [&tail, tag, sink](std::string_view line) {
                                          tail.append(std::string(line));
                                          if (sink) sink->write_line(tag, line);
                                        });
  };
  return {reader(std::move(output), output_), reader(std::move(errors), errors_)};
}

void Supervisor::adopt(std::shared_ptr<WorkerRecord> record, os::Fd output, os::Fd errors) {
  WorkerRecord* key = record.get();
  OutputReaders readers =
      read_output(key->spec().name, key->tail(), std::move(output), std::move(errors));
  watched_.emplace(key, Watched{std::move(record), std::move(readers)});
}

void Supervisor::watch_child(const std::shared_ptr<WorkerRecord>& record) {
  const int pidfd = record->pidfd();
  loop_.watch(pidfd, POLLIN, [this, record, pidfd] { finish(record, collect(pidfd)); });
}

void Supervisor::watch_foreign(const std::shared_ptr<WorkerRecord>& record,
                               std::chrono::milliseconds grace) {
  const int pidfd = record->pidfd();
  loop_.watch(pidfd, POLLIN, [this, record, pidfd, grace] {
    loop_.unwatch(pidfd);
    if (grace.count() == 0) {
      finish(record, kUnknownStatus);
    } else {
      // Weak: a worker whose status comes in time does not keep its descriptor until the timer is
      // due.
      loop_.after(grace, [this, weak = std::weak_ptr(record)] {
        if (const auto late = weak.lock()) finish(late, kUnknownStatus);
      });
    }
  });
}

void Supervisor::finish(const std::shared_ptr<WorkerRecord>& record, ExitStatus status) {
  const auto found = watched_.find(record.get());
  if (found == watched_.end()) return;
  if (const int pidfd = record->pidfd(); pidfd >= 0) loop_.unwatch(pidfd);
  found->second.readers.finish();
  watched_.erase(found);
  record->set_ended(status);
}

void Supervisor::abandon(const std::shared_ptr<WorkerRecord>& record) {
  watched_.erase(record.get());
}

}  // namespace shoal::process
