// What a worker process runs: its entry, found by name in a table.
//
// A zygote's program and a spawned program have a table of their own (worker_main.h, or the Python
// bootstrap); fork uses the one in LaunchOptions::fork_hooks.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shoal/process/channel.h"

namespace shoal::process {

/// What a worker is given; a resource, of the worker's process. Its stdout and stderr go to the
/// parent's supervisor; SIGINT is ignored.
struct WorkerContext {
  std::string name;    // WorkerSpec::name
  int index = -1;      // WorkerSpec::index
  int first_env = -1;  // WorkerSpec::first_env
  int num_envs = 0;    // WorkerSpec::num_envs
  bool hide_gpu =
      true;  // LaunchOptions::hide_gpu: check with gpu_in_use() once everything is built
  std::vector<std::byte> payload;  // WorkerSpec::payload
  Channel channel;                 // kClosed on it: the parent wants the worker to end
};

/// Runs a worker; returns the exit code. What it throws goes to the parent as an ErrorReport on the
/// channel, and the process ends with exit code 1.
using Entry = std::function<int(WorkerContext& context)>;

/// Entries by name; a value.
/// Threads: one at a time; at() from any when no add() runs.
/// Processes, death: it lies in one process, and ends with it.
class EntryTable {
 public:
  /// Throws InvalidArgument when `name` is taken.
  void add(std::string name, Entry entry);
  /// Throws InvalidArgument naming the entries there are.
  const Entry& at(const std::string& name) const;

 private:
  std::map<std::string, Entry> entries_;
};

/// What surrounds a fork in a process that runs more than C++ (PyOS_BeforeFork and its kin), and
/// what its children run. The functions may be empty.
struct ForkHooks {
  std::function<void()> before_fork;
  std::function<void()> after_fork_parent;
  std::function<void()> after_fork_child;
  EntryTable entries;
};

}  // namespace shoal::process
