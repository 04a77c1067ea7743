#include "shoal/process/boot/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace shoal::process {
namespace {

std::map<std::string, std::string> as_map(const Environment& environment) {
  return {environment.begin(), environment.end()};
}

TEST(Environment, CurrentEnvironmentIsThatOfTheProcess) {
  ::setenv("SHOAL_TEST_VARIABLE", "a=b", 1);
  EXPECT_EQ(as_map(current_environment()).at("SHOAL_TEST_VARIABLE"), "a=b");
  ::unsetenv("SHOAL_TEST_VARIABLE");
  EXPECT_EQ(as_map(current_environment()).count("SHOAL_TEST_VARIABLE"), 0u);
}

TEST(Environment, LaunchersVariablesAreLeftOut) {
  const Environment inherited{{"PATH", "/bin"},
                              {"RANK", "1"},
                              {"WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "localhost"},
                              {"TORCHELASTIC_RUN_ID", "x"},
                              {"OMPI_COMM_WORLD_RANK", "2"},
                              {"PMI_RANK", "2"},
                              {"PMIX_NAMESPACE", "n"},
                              {"PRTE_LAUNCHED", "1"},
                              {"SLURM_PROCID", "3"},
                              {"SLURM_STEPID", "0"},
                              {"MPIR_CVAR_CH4_OFI_ENABLE", "1"},
                              {"RAY_ADDRESS", "10.0.0.1:6379"},
                              {"TORCHFT_LIGHTHOUSE", "http://host"},
                              {"SHOAL_GROUP_SECRET", "of the ranks"},
                              {"SHOAL_GROUP_STAR", "1"},
                              {"PALS_RANKID", "1"},
                              {"JSM_NAMESPACE_RANK", "1"},
                              {"FLUX_TASK_RANK", "1"},
                              {"SLURM_JOB_ID", "77"}};
  const auto clean = as_map(clean_environment(inherited, 1, false, {}));
  for (const auto& [name, value] : inherited) {
    const bool kept = name == "PATH" || name == "SLURM_JOB_ID";
    EXPECT_EQ(clean.count(name), kept ? 1u : 0u) << name;
  }
}

TEST(Environment, ThreadPoolsAreBounded) {
  const auto clean = as_map(clean_environment({{"OMP_NUM_THREADS", "16"}}, 2, false, {}));
  for (const char* name :
       {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"}) {
    EXPECT_EQ(clean.at(name), "2") << name;
  }
}

TEST(Environment, GpusAreHiddenOnRequest) {
  const Environment inherited{{"CUDA_VISIBLE_DEVICES", "0,1"}};
  EXPECT_EQ(as_map(clean_environment(inherited, 1, true, {})).at("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(as_map(clean_environment(inherited, 1, false, {})).at("CUDA_VISIBLE_DEVICES"), "0,1");
}

TEST(Environment, WhatTheCallerSetsComesLast) {
  const Environment inherited{{"DISPLAY", ":0"}};
  const Environment extra{{"DISPLAY", ":7"}, {"OMP_NUM_THREADS", "3"}, {"RANK", "0"}};
  const auto clean = as_map(clean_environment(inherited, 1, true, extra));
  EXPECT_EQ(clean.at("DISPLAY"), ":7");
  EXPECT_EQ(clean.at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(clean.at("RANK"), "0");
}

}  // namespace
}  // namespace shoal::process
