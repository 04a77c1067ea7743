// Who started this process as one of several, and as which.
//
//   launcher         what it sets                                                     rank 0's host
//   torchrun         RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_*   MASTER_ADDR
//   Ray Train        the same and NODE_RANK, without TORCHELASTIC_*                   MASTER_ADDR
//   Open MPI         OMPI_COMM_WORLD_*                                                MASTER_ADDR, if at all
//   MPICH, Intel     PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS             likewise
//   RANK by hand     RANK, WORLD_SIZE; LOCAL_* where several share a host             MASTER_ADDR
//   srun             SLURM_PROCID and kin, in a step                                  the first node of the step
//
// The uppermost whose variables are there has it: torchrun inside srun, or mpirun inside a job of
// Slurm, leaves both sets, and the inner one started this process.
//
// Threads: a value.
#pragma once

#include <string>
#include <vector>

#include "shoal/process/boot/environment.h"

namespace shoal::group {

struct Launch {
  std::string launcher;  // by name, for messages; empty: none
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host, from 0
  int local_size = 1;
  std::string node = {};        // tells hosts apart where the launcher numbers them; may be empty
  std::string attempt = {};     // the same for all ranks that are to meet, and for no others
  std::string address = {};     // of rank 0's host; may be empty where all are on one host
  std::vector<int> ports = {};  // of rank 0, which takes the first free one

  bool operator==(const Launch&) const = default;

  bool one_host() const noexcept { return local_size == size; }

  /// What these variables say. SHOAL_GROUP_ADDR (host:port) goes before any other address,
  /// SHOAL_GROUP_ATTEMPT before any other name of the attempt.
  /// Args: parent: names the process that started this one, for launchers that name no attempt.
  /// Throws InvalidArgument naming variables that contradict each other, or have no such value.
  static Launch detect(const process::Environment& variables, const std::string& parent);

  /// What this process has been told.
  static Launch detect();

  /// One of `size` processes of this host.
  static Launch local(int rank, int size, std::string attempt);
};

/// Throws InvalidArgument for numbers that are none of a group's, or no way to find rank 0.
void validate(const Launch& launch);

}  // namespace shoal::group
