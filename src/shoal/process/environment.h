// The environment variables of started programs.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shoal::process {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// The variables of this process as they are now.
Environment current_environment();

/// Whether `name` tells a process its place in a group that a launcher made (torchrun, mpirun,
/// srun): an environment worker that saw it would join the group of its learner.
bool is_launcher_variable(const std::string& name);

/// What is set for a worker besides the variables of its caller: the limits of thread pools, hidden
/// GPUs, `extra` last.
Environment worker_settings(int threads, bool hide_gpu, const Environment& extra);

/// `inherited` without launcher variables, with worker_settings() on top.
Environment clean_environment(const Environment& inherited, int threads, bool hide_gpu,
                              const Environment& extra);

}  // namespace shoal::process
