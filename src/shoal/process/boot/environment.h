// The environment variables of started programs.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shoal::process {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// The variables of this process as they are now.
Environment current_environment();

/// Whether a launcher of groups (torchrun, mpirun, srun) uses the variable `name` to tell a process
/// its rank. A worker of environments that saw it would join its learner's group.
bool is_launcher_variable(const std::string& name);

/// The variables that are set for a worker on top of its caller's: limits of thread pools, hidden
/// GPUs, and `extra` last.
Environment worker_settings(int threads, bool hide_gpu, const Environment& extra);

/// `inherited` without launcher variables, with worker_settings() on top.
Environment clean_environment(const Environment& inherited, int threads, bool hide_gpu,
                              const Environment& extra);

}  // namespace shoal::process
