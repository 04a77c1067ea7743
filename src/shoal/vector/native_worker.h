// The entry of worker processes that step native environments, and what the parent tells them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shoal/process/entry.h"
#include "shoal/process/launcher.h"
#include "shoal/process/worker_setup.h"

namespace shoal::vector {

inline constexpr std::string_view kNativeVectorEntry = "native-vector";

/// Builds the environments that the payload names and serves them until the parent says close.
int native_vector_entry(process::WorkerContext& context);

/// The workers that together hold `num_envs` environments of `id`, divided as evenly as possible.
std::vector<process::WorkerSpec> native_worker_specs(std::string_view id, int num_envs,
                                                     int num_workers, std::string_view env_args,
                                                     const process::WorkerSetup& setup = {});

}  // namespace shoal::vector
