// Watches started processes: drains their output, learns how they ended, tells their records.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "shoal/process/event_loop.h"
#include "shoal/process/output_relay.h"
#include "shoal/process/worker_record.h"

namespace shoal::process {

/// The lines of one process's stdout and stderr, on their way to its LogTail and to ours.
struct OutputReaders {
  std::unique_ptr<LineReader> output;
  std::unique_ptr<LineReader> errors;
  void finish() {
    if (output) output->finish();
    if (errors) errors->finish();
  }
};

/// Threads: loop() as it says; everything else in the loop's thread, but for the constructor and
/// the destructor. Fork: unusable in a forked child (EventLoop).
class Supervisor {
 public:
  explicit Supervisor(bool relay_output);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  EventLoop& loop() noexcept { return loop_; }

  /// Drains both pipes into `tail`, tagged with `tag` where they are relayed. `tail` outlives the
  /// readers.
  OutputReaders read_output(const std::string& tag, LogTail& tail, os::Fd output, os::Fd errors);

  /// Takes over the output of a worker.
  void adopt(std::shared_ptr<WorkerRecord> record, os::Fd output, os::Fd errors);

  /// Watches a worker that is a child of this process: collects its status itself. The record is
  /// running.
  void watch_child(const std::shared_ptr<WorkerRecord>& record);

  /// Watches a worker that is somebody else's child: its status comes by finish(). When `grace` has
  /// passed since its end without that, the status stays unknown. The record is running.
  void watch_foreign(const std::shared_ptr<WorkerRecord>& record, std::chrono::milliseconds grace);

  /// The worker has ended: drains what it wrote, then tells. No effect when that was done already.
  void finish(const std::shared_ptr<WorkerRecord>& record, ExitStatus status);

  /// Drops a worker that never ran.
  void abandon(const std::shared_ptr<WorkerRecord>& record);

 private:
  struct Watched {
    std::shared_ptr<WorkerRecord> record;
    OutputReaders readers;
  };

  std::shared_ptr<OutputSink> output_;  // nullptr: not relayed
  std::shared_ptr<OutputSink> errors_;
  std::unordered_map<WorkerRecord*, Watched> watched_;
  EventLoop loop_;
};

}  // namespace shoal::process
