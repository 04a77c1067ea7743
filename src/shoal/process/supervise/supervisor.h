// Watches started processes: drains their output, collects how they ended, updates their records.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shoal/process/supervise/event_loop.h"
#include "shoal/process/supervise/output_relay.h"
#include "shoal/process/supervise/worker_record.h"

namespace shoal::process {

/// Reads the pipes of one process's stdout and stderr; its lines go to its LogTail, and to this
/// process's own stdout and stderr. A resource.
struct OutputReaders {
  std::unique_ptr<LineReader> output;
  std::unique_ptr<LineReader> errors;
  void finish() {
    if (output) output->finish();
    if (errors) errors->finish();
  }
};

/// A thread that watches workers; a resource.
///
/// Threads: the constructor, the destructor and loop() from any; the rest in the loop's thread.
/// Processes: the parent's.
/// Death: of a worker: what it wrote is drained, then its record is told how it ended.
/// Fork: a child must neither use nor destroy it (EventLoop).
class Supervisor {
 public:
  /// `on_worker_end` as in LaunchOptions.
  explicit Supervisor(bool relay_output, std::function<void(int pid)> on_worker_end = {});
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  EventLoop& loop() noexcept { return loop_; }

  /// Drains both pipes into `tail`, tagged with `tag` where they are relayed. `tail` outlives the
  /// readers.
  OutputReaders read_output(const std::string& tag, LogTail& tail, os::Fd output, os::Fd errors);

  /// Watches a worker whose pipes this process holds.
  void adopt(std::shared_ptr<WorkerRecord> record, os::Fd output, os::Fd errors);

  /// Watches a worker whose output comes by take_output().
  void adopt(std::shared_ptr<WorkerRecord> record);
  /// `stream` is STDOUT_FILENO or STDERR_FILENO.
  void take_output(WorkerRecord& record, int stream, std::string_view piece);

  /// Watches a running worker that is a child of this process, and collects its status. With
  /// `leads_session`, ends what is left of its session after it.
  void watch_child(const std::shared_ptr<WorkerRecord>& record, bool leads_session = true);

  /// The worker has ended: drains what it wrote, then tells its record. Idempotent.
  void finish(const std::shared_ptr<WorkerRecord>& record, ExitStatus status);

  /// Drops a worker that never ran.
  void abandon(const std::shared_ptr<WorkerRecord>& record);

 private:
  struct Watched {
    std::shared_ptr<WorkerRecord> record;
    OutputReaders readers;
    std::optional<LineSplitter> output;  // without pipes: what take_output() feeds
    std::optional<LineSplitter> errors;
  };

  std::function<void(std::string_view)> line_handler(const std::string& tag, LogTail& tail,
                                                     std::shared_ptr<OutputSink> sink);

  void end_left_sessions();

  const std::function<void(int pid)> on_worker_end_;
  std::shared_ptr<OutputSink> output_;  // nullptr: not relayed
  std::shared_ptr<OutputSink> errors_;
  std::unordered_map<WorkerRecord*, Watched> watched_;
  std::vector<pid_t> left_sessions_;  // of children that ended: what they started may live on
  EventLoop loop_;
};

}  // namespace shoal::process
