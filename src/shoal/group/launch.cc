#include "shoal/group/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "shoal/group/host_port.h"
#include "shoal/os/error.h"
#include "shoal/os/fnv1a.h"
#include "shoal/os/process/process_id.h"

namespace shoal::group {
namespace {

constexpr int kPorts = 16;          // that rank 0 may take
constexpr int kFirstPort = 20'000;  // below those that the kernel gives to outgoing connections
constexpr int kPortRange = 12'000;
constexpr std::int64_t kFirstSpecialStep = 4'294'967'280;  // Slurm's batch, interactive and extern

class Variables {
 public:
  explicit Variables(const process::Environment& variables)
      : values_(variables.begin(), variables.end()) {}

  bool has(const std::string& name) const { return !text(name).empty(); }
  bool have(std::initializer_list<const char*> names) const {
    return std::ranges::all_of(names, [&](const char* name) { return has(name); });
  }
  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }
  std::int64_t number(const std::string& name) const {
    const std::string value = text(name);
    std::int64_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < 0)
      throw InvalidArgument(
          fmt::format("the environment variable {} is '{}', it has to be a whole number, 0 or more",
                      name, value));
    return result;
  }
  int small_number(const std::string& name) const {
    return static_cast<int>(std::min<std::int64_t>(number(name), 1'000'000));
  }

 private:
  std::map<std::string, std::string> values_;
};

/// `rank` of `size`, by the variables of these names.
void read_place(const Variables& variables, const char* rank_name, const char* size_name, int& rank,
                int& size) {
  rank = variables.small_number(rank_name);
  size = variables.small_number(size_name);
  if (rank >= size)
    throw InvalidArgument(fmt::format(
        "the environment variables {} and {} contradict each other: {} is no rank of {}", rank_name,
        size_name, rank, size));
}

bool names_loopback(std::string_view address) {
  return address.empty() || address == "localhost" || address == "::1" ||
         address.starts_with("127.");
}

std::vector<int> ports_from(int first) {
  std::vector<int> ports;
  for (int i = 0; i < kPorts; ++i) ports.push_back(first + i);
  return ports;
}

/// Ports that follow from a name, since nobody has agreed on others.
std::vector<int> ports_of(std::string_view attempt) {
  const std::uint64_t hash = os::fnv1a(std::as_bytes(std::span(attempt)));
  return ports_from(kFirstPort + static_cast<int>(hash % (kPortRange / kPorts)) * kPorts);
}

/// MASTER_ADDR, and ports beside MASTER_PORT, which somebody else's store has.
void read_master(const Variables& variables, Launch& launch) {
  if (variables.has("MASTER_ADDR")) launch.address = variables.text("MASTER_ADDR");
  if (!variables.has("MASTER_PORT")) return;
  const auto port = variables.number("MASTER_PORT");
  if (port > 65'535)
    throw InvalidArgument(
        fmt::format("the environment variable MASTER_PORT is {}, which is no port", port));
  launch.ports = ports_from(static_cast<int>(std::min<std::int64_t>(port + 1, 65'535 - kPorts)));
}

std::string master_of(const Variables& variables) {
  return fmt::format("{}:{}", variables.text("MASTER_ADDR"), variables.text("MASTER_PORT"));
}

void read_ranks_of_torch(const Variables& variables, Launch& launch) {
  read_place(variables, "RANK", "WORLD_SIZE", launch.rank, launch.size);
  if (variables.have({"LOCAL_RANK", "LOCAL_WORLD_SIZE"})) {
    read_place(variables, "LOCAL_RANK", "LOCAL_WORLD_SIZE", launch.local_rank, launch.local_size);
  } else if (names_loopback(variables.text("MASTER_ADDR"))) {
    launch.local_rank = launch.rank;
    launch.local_size = launch.size;
  }
  read_master(variables, launch);
}

std::optional<Launch> of_torchrun(const Variables& variables) {
  if (!variables.have({"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"})) return {};
  Launch launch{.launcher = "torchrun"};
  read_ranks_of_torch(variables, launch);
  launch.node = variables.text("GROUP_RANK");
  launch.attempt =
      fmt::format("torchrun/{}/{}", variables.text("TORCHELASTIC_RUN_ID"), master_of(variables));
  // Each agent counts its own restarts, so the numbers of several differ.
  if (launch.one_host()) launch.attempt += "/" + variables.text("TORCHELASTIC_RESTART_COUNT");
  return launch;
}

std::optional<Launch> of_ray_train(const Variables& variables) {
  if (!variables.have({"RANK", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK"})) return {};
  Launch launch{.launcher = "Ray Train"};
  read_ranks_of_torch(variables, launch);
  launch.node = variables.text("NODE_RANK");
  launch.attempt = "ray/" + master_of(variables);
  return launch;
}

std::optional<Launch> of_open_mpi(const Variables& variables, const std::string& parent) {
  if (!variables.have({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return {};
  Launch launch{.launcher = "mpirun (Open MPI)"};
  read_place(variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", launch.rank, launch.size);
  read_place(variables, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
             launch.local_rank, launch.local_size);
  read_master(variables, launch);
  launch.attempt = "mpirun/" + parent;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (variables.has(name)) launch.attempt = "mpirun/" + variables.text(name);
  return launch;
}

std::optional<Launch> of_hydra(const Variables& variables, const std::string& parent) {
  if (!variables.have({"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"})) return {};
  Launch launch{.launcher = "mpirun (MPICH)"};
  read_place(variables, "PMI_RANK", "PMI_SIZE", launch.rank, launch.size);
  read_place(variables, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", launch.local_rank, launch.local_size);
  read_master(variables, launch);
  launch.attempt = "hydra/" + (launch.one_host() ? parent : master_of(variables));
  return launch;
}

std::optional<Launch> by_hand(const Variables& variables) {
  if (!variables.have({"RANK", "WORLD_SIZE"})) return {};
  Launch launch{.launcher = "RANK and WORLD_SIZE"};
  read_ranks_of_torch(variables, launch);
  launch.attempt = "ranks/" + master_of(variables);
  return launch;
}

/// The element at `node` of "2(x2),1", which is 2, 2, 1.
int tasks_of_node(const std::string& list, int node) {
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    int tasks = 0, times = 1;
    std::from_chars(item.data(), item.data() + item.size(), tasks);
    if (const auto x = item.find("(x"); x != std::string_view::npos)
      std::from_chars(item.data() + x + 2, item.data() + item.size(), times);
    if (node < times) return tasks;
    node -= times;
  }
  return 0;
}

/// The first of "n[1-2,5],m3", which is n1.
std::string first_node(const std::string& list) {
  const auto end = list.find_first_of("[,");
  std::string name = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return name;
  return name + list.substr(end + 1, list.find_first_of("-,]", end) - end - 1);
}

std::optional<Launch> of_slurm(const Variables& variables) {
  const char* step = variables.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  if (!variables.has(step) || !variables.has("SLURM_PROCID")) return {};
  if (variables.number(step) >= kFirstSpecialStep) return {};
  const char* size =
      variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  Launch launch{.launcher = "srun"};
  read_place(variables, "SLURM_PROCID", size, launch.rank, launch.size);
  launch.local_rank = variables.small_number("SLURM_LOCALID");
  launch.local_size = tasks_of_node(variables.text("SLURM_STEP_TASKS_PER_NODE"),
                                    variables.small_number("SLURM_NODEID"));
  if (launch.local_rank >= launch.local_size)
    throw InvalidArgument(fmt::format(
        "the environment variables SLURM_LOCALID and SLURM_STEP_TASKS_PER_NODE contradict each "
        "other: {} is no task of node {} in '{}'",
        launch.local_rank, variables.text("SLURM_NODEID"),
        variables.text("SLURM_STEP_TASKS_PER_NODE")));
  launch.node = variables.text("SLURM_NODEID");
  launch.attempt = fmt::format("slurm/{}.{}/{}", variables.text("SLURM_JOB_ID"),
                               variables.text(step), variables.text("SLURM_RESTART_COUNT"));
  launch.address = first_node(variables.text("SLURM_STEP_NODELIST"));
  read_master(variables, launch);
  return launch;
}

void read_own_address(const Variables& variables, Launch& launch) {
  const std::string value = variables.text("SHOAL_GROUP_ADDR");
  HostPort named;
  try {
    named = parse_host_port(value);
  } catch (const InvalidArgument&) {  // as port 0, which is none
  }
  if (named.port == 0)
    throw InvalidArgument(fmt::format(
        "the environment variable SHOAL_GROUP_ADDR is '{}', it has to be host:port of rank 0",
        value));
  launch.address = std::move(named.host);
  launch.ports = {named.port};
}

}  // namespace

Launch Launch::detect(const process::Environment& environment, const std::string& parent) {
  const Variables variables(environment);
  std::optional<Launch> found = of_torchrun(variables);
  if (!found) found = of_ray_train(variables);
  if (!found) found = of_open_mpi(variables, parent);
  if (!found) found = of_hydra(variables, parent);
  if (!found) found = by_hand(variables);
  if (!found) found = of_slurm(variables);
  if (!found) return {};
  if (variables.has("SHOAL_GROUP_ATTEMPT"))
    found->attempt = "named/" + variables.text("SHOAL_GROUP_ATTEMPT");
  if (variables.has("SHOAL_GROUP_ADDR")) read_own_address(variables, *found);
  if (found->ports.empty()) found->ports = ports_of(found->attempt);
  return *found;
}

Launch Launch::detect() {
  const auto parent = ::getppid();
  return detect(process::current_environment(), fmt::format("process {}", parent));
}

Launch Launch::local(int rank, int size, std::string attempt) {
  return {.launcher = "shoal",
          .rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .node = {},
          .attempt = std::move(attempt),
          .address = {},
          .ports = {}};
}

void validate(const Launch& l) {
  if (l.size < 1 || l.rank < 0 || l.rank >= l.size)
    throw InvalidArgument(
        fmt::format("join a group: rank {} of {}; ranks count from 0", l.rank, l.size));
  if (l.local_size < 1 || l.local_size > l.size || l.local_rank < 0 || l.local_rank >= l.local_size)
    throw InvalidArgument(fmt::format(
        "join a group of {}: local rank {} of {}; local ranks count from 0 on each host", l.size,
        l.local_rank, l.local_size));
  if (l.rank == 0 && l.local_rank != 0)
    throw InvalidArgument(
        fmt::format("join a group: rank 0 has local rank {}; it has to be the first of its host",
                    l.local_rank));
  if (l.one_host()) return;
  if (l.address.empty())
    throw InvalidArgument(fmt::format(
        "join a group of {} ranks on several hosts: {} does not say where rank 0 is; set "
        "MASTER_ADDR for all ranks to its host (mpirun -x MASTER_ADDR=…), or "
        "SHOAL_GROUP_ADDR=host:port",
        l.size, l.launcher.empty() ? "nobody" : l.launcher));
  if (l.ports.empty())
    throw InvalidArgument("join a group of several hosts: rank 0 has no port to listen on");
}

}  // namespace shoal::group
