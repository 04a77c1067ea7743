#include "shoal/process/boot/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace shoal::process {
namespace {

constexpr std::array<std::string_view, 13> kLauncherPrefixes{
    "OMPI_",         "PMI_",     "PMIX_", "PRTE_",       "ORTE_", "MPIR_", "MV2_COMM_WORLD_",
    "TORCHELASTIC_", "TORCHFT_", "RAY_",  "SLURM_STEP_", "PALS_", "JSM_",
};

constexpr std::array<std::string_view, 35> kLauncherVariables{
    // torchrun, and whoever imitates it
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "ACCELERATE_TORCH_DEVICE",
    // what goes before them
    "SHOAL_GROUP_ADDR",
    "SHOAL_GROUP_ATTEMPT",
    "SHOAL_GROUP_SECRET",
    "SHOAL_GROUP_STAR",
    // MPICH and Intel MPI
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "HYDI_CONTROL_FD",
    // Slurm: which task this is, not which job
    "SLURM_PROCID",
    "SLURM_STEPID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT",
    // Flux: which task this is
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
};

}  // namespace

Environment current_environment() {
  Environment variables;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

bool is_launcher_variable(const std::string& name) {
  return std::ranges::find(kLauncherVariables, name) != kLauncherVariables.end() ||
         std::ranges::any_of(kLauncherPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

Environment worker_settings(int threads, bool hide_gpu, const Environment& extra) {
  Environment settings;
  for (const char* variable :
       {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"}) {
    if (threads > 0) settings.emplace_back(variable, std::to_string(threads));
  }
  if (hide_gpu) {
    settings.emplace_back("CUDA_VISIBLE_DEVICES", "");
    settings.emplace_back("HIP_VISIBLE_DEVICES", "-1");
    settings.emplace_back("ROCR_VISIBLE_DEVICES", "-1");
  }
  settings.insert(settings.end(), extra.begin(), extra.end());
  return settings;
}

Environment clean_environment(const Environment& inherited, int threads, bool hide_gpu,
                              const Environment& extra) {
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : inherited) {
    if (!is_launcher_variable(name)) variables[name] = value;
  }
  for (const auto& [name, value] : worker_settings(threads, hide_gpu, extra))
    variables[name] = value;
  return {variables.begin(), variables.end()};
}

}  // namespace shoal::process
