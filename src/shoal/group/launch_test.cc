#include "shoal/group/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

using process::Environment;
using ::testing::HasSubstr;

Launch detect(const Environment& variables) { return Launch::detect(variables, "process 7"); }

Environment operator+(Environment a, const Environment& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Environment kTorchrun{{"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"GROUP_RANK", "1"},
                            {"MASTER_ADDR", "n1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "abc"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_NAMESPACE", "123.1"}};
const Environment kHydra{
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSlurm{{"SLURM_PROCID", "3"},
                         {"SLURM_NTASKS", "5"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_JOB_ID", "42"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                         {"SLURM_STEP_NODELIST", "n[7-8],m3"}};

std::string refusal(const Environment& variables) {
  try {
    static_cast<void>(detect(variables));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Launch, WithoutALauncherAProcessIsAlone) {
  EXPECT_EQ(detect({{"HOME", "/root"}}), Launch{});
  EXPECT_EQ(Launch{}.size, 1);
}

TEST(Launch, OfTorchrun) {
  const Launch launch = detect(kTorchrun);
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_EQ(launch.node, "1");
  EXPECT_EQ(launch.address, "n1");
  EXPECT_EQ(launch.ports.front(), 29501) << "the agent's store has MASTER_PORT";
}

TEST(Launch, RestartsOfTorchrunTellAttemptsApartOnOneHostOnly) {
  const auto attempt = [](const char* restarts, const char* local_size) {
    Environment variables = kTorchrun;
    for (auto& [name, value] : variables) {
      if (name == "TORCHELASTIC_RESTART_COUNT") value = restarts;
      if (name == "LOCAL_WORLD_SIZE") value = local_size;
    }
    return detect(variables).attempt;
  };
  EXPECT_NE(attempt("0", "4"), attempt("1", "4"));
  EXPECT_EQ(attempt("0", "2"), attempt("1", "2"));
}

TEST(Launch, OfRayTrain) {
  const Launch launch = detect({{"RANK", "1"},
                                {"WORLD_SIZE", "2"},
                                {"LOCAL_RANK", "0"},
                                {"LOCAL_WORLD_SIZE", "1"},
                                {"NODE_RANK", "1"},
                                {"MASTER_ADDR", "10.0.0.1"},
                                {"MASTER_PORT", "4242"}});
  EXPECT_EQ(launch.launcher, "Ray Train");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.attempt, "ray/10.0.0.1:4242");
}

TEST(Launch, OfOpenMpi) {
  const Launch launch = detect(kOpenMpi);
  EXPECT_EQ(launch.launcher, "mpirun (Open MPI)");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_TRUE(launch.one_host());
  EXPECT_EQ(launch.attempt, "mpirun/123.1");
}

TEST(Launch, OfHydraTheAttemptIsTheCommonParent) {
  const Launch launch = detect(kHydra);
  EXPECT_EQ(launch.launcher, "mpirun (MPICH)");
  EXPECT_EQ(launch.size, 2);
  EXPECT_EQ(launch.attempt, "hydra/process 7");
}

TEST(Launch, OfSlurmInAStep) {
  const Launch launch = detect(kSlurm);
  EXPECT_EQ(launch.launcher, "srun");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 5);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_EQ(launch.address, "n7");
  EXPECT_EQ(launch.attempt, "slurm/42.0/");
  EXPECT_EQ(launch.ports.size(), 16u);
}

TEST(Launch, SlurmsVariablesOutsideOfAStepAreNobodys) {
  Environment batch;
  for (const auto& variable : kSlurm)
    if (variable.first != "SLURM_STEP_ID") batch.push_back(variable);
  EXPECT_EQ(detect(batch), Launch{});
  EXPECT_EQ(detect(batch + Environment{{"SLURM_STEP_ID", "4294967291"}}), Launch{});
}

TEST(Launch, TheStepsSizeGoesBeforeTheJobs) {
  EXPECT_EQ(detect(kSlurm + Environment{{"SLURM_STEP_NUM_TASKS", "4"}}).size, 4);
}

TEST(Launch, OfRanksByHand) {
  const Launch launch = detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n1"}});
  EXPECT_EQ(launch.launcher, "RANK and WORLD_SIZE");
  EXPECT_EQ(launch.local_size, 1);
  EXPECT_EQ(detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).local_size, 2);
}

TEST(Launch, TheInnerLauncherHasIt) {
  EXPECT_EQ(detect(kSlurm + kTorchrun).launcher, "torchrun");
  EXPECT_EQ(detect(kSlurm + kOpenMpi).launcher, "mpirun (Open MPI)");
  EXPECT_EQ(detect(kSlurm + kHydra).launcher, "mpirun (MPICH)");
}

TEST(Launch, OwnVariablesGoBeforeTheLaunchers) {
  const Launch launch = detect(
      kTorchrun + Environment{{"SHOAL_GROUP_ADDR", "n9:1234"}, {"SHOAL_GROUP_ATTEMPT", "mine"}});
  EXPECT_EQ(launch.address, "n9");
  EXPECT_EQ(launch.ports, std::vector<int>{1234});
  EXPECT_EQ(launch.attempt, "named/mine");
  EXPECT_EQ(detect(kTorchrun + Environment{{"SHOAL_GROUP_ADDR", "[fe80::1]:1234"}}).address,
            "fe80::1");
}

TEST(Launch, ContradictionsAndNonsenseNameTheirVariables) {
  EXPECT_THAT(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK and WORLD_SIZE"));
  EXPECT_THAT(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is 'x'"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
              HasSubstr("MASTER_PORT"));
  for (const char* address : {"n9", "n9:1234x", "n9:0", "n9:99999", ":1234", "fe80::1:1234"})
    EXPECT_THAT(refusal(kOpenMpi + Environment{{"SHOAL_GROUP_ADDR", address}}),
                HasSubstr("SHOAL_GROUP_ADDR"))
        << address;
  Environment slurm = kSlurm;
  slurm[2].second = "2";
  EXPECT_THAT(refusal(slurm), HasSubstr("SLURM_LOCALID and SLURM_STEP_TASKS_PER_NODE"));
}

TEST(Launch, SeveralHostsNeedAnAddress) {
  Launch launch{.launcher = "mpirun (MPICH)", .rank = 1, .size = 2};
  try {
    validate(launch);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("MASTER_ADDR"));
  }
  EXPECT_NO_THROW(validate(Launch::local(1, 2, "a")));
  EXPECT_THROW(validate(Launch::local(2, 2, "a")), InvalidArgument);
}

}  // namespace
}  // namespace shoal::group
