// The directory of one training run.
//
//   config.json        what it was told:
//                      {"format": "shoal.run", "version": 1, "config": {every option}, …}
//   progress.jsonl     what was measured, in the order of steps; a line each:
//                      {"step", "seconds", name: number, …}
//   checkpoints/last   where a resume starts (checkpoint.h)
//   checkpoints/best   the policy of the best evaluation
//   result.json        the outcome, once the run has ended
//   lock               held by the process that trains in it
//
// Threads: one at a time.
// Processes: one writer a directory, guarded by an advisory lock that ends with its process;
// readers see whole files, and whole lines of progress.jsonl but for the last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "shoal/learn/run/scalars.h"
#include "shoal/os/process/making_process.h"

namespace shoal::learn {

class RunDirectory {
 public:
  enum class Mode {
    kNew,  // throws InvalidArgument when a run is in the directory already; removes what is left of one
           // that has no checkpoint
    kResume,  // throws InvalidArgument when none is
  };

  /// Makes the directory when it is not there, and locks it. Throws InvalidState when another
  /// process, or another RunDirectory, holds it; SystemError when it cannot be made.
  RunDirectory(std::filesystem::path path, Mode mode);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Lets others have the directory; only the paths can be asked for from now on. Idempotent.
  void release() noexcept;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path last() const { return path_ / "checkpoints" / "last"; }
  std::filesystem::path best() const { return path_ / "checkpoints" / "best"; }

  /// Adds "format" and "version".
  void write_config(nlohmann::json config) const;
  void write_result(const nlohmann::json& result) const;

  /// A new run starts with none; a resumed one drops the lines after `step`, which it is about to
  /// make again.
  void start_progress(std::int64_t step);
  void append_progress(const ScalarRecord& record);

 private:
  std::filesystem::path path_;
  os::MakingProcess maker_;
  int lock_fd_ = -1;
  int progress_fd_ = -1;
};

/// config.json of a run. Throws CorruptFile when the directory holds no run.
nlohmann::json read_run_config(const std::filesystem::path& run_directory);

}  // namespace shoal::learn
