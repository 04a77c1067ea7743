#include "shoal/process/worker_died.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::process {
namespace {

using ::testing::HasSubstr;

TEST(ExitStatus, DescribesCodesSignalsAndTheUnknown) {
  EXPECT_EQ((ExitStatus{.code = 3}).describe(), "exit code 3");
  EXPECT_EQ((ExitStatus{.signal = 9}).describe(), "signal 9 (SIGKILL)");
  EXPECT_EQ((ExitStatus{.known = false}).describe(), "an unknown exit status");
}

TEST(ExitStatus, NamesTheZygoteThatTookItAlong) {
  ZygoteEnd end{.pid = 7, .sub_zygote = -1, .status = {.signal = 9}};
  ExitStatus status{.known = false, .zygote = std::make_shared<const ZygoteEnd>(end)};
  EXPECT_EQ(
      status.describe(),
      "its zygote (pid 7), which ended with signal 9 (SIGKILL) and takes its workers with it");
  end.sub_zygote = 8;
  status.zygote = std::make_shared<const ZygoteEnd>(end);
  EXPECT_EQ(status.describe(),
            "its zygote (pid 7), whose sub-zygote (pid 8) ended with signal 9 (SIGKILL) and takes "
            "all workers with it");
}

TEST(WorkerDied, SaysAllThatIsKnown) {
  DeathCertificate certificate;
  certificate.worker = "worker 3";
  certificate.pid = 4711;
  certificate.first_env = 12;
  certificate.num_envs = 4;
  certificate.status = {.signal = 11};
  certificate.report.emplace();
  certificate.report->type = "ValueError";
  certificate.report->message = "bad action";
  certificate.log_tail = {"loading", "loaded"};
  const WorkerDied error(certificate);
  for (const char* expected :
       {"worker 3", "pid 4711", "environments 12 to 15", "signal 11 (SIGSEGV)",
        "ValueError: bad action", "| loading", "| loaded"}) {
    EXPECT_THAT(error.what(), HasSubstr(expected));
  }
  EXPECT_EQ(error.certificate().pid, 4711);
}

TEST(WorkerDied, ACauseThatGoesOnFromTheHeadlineDoesNotRepeatIt) {
  DeathCertificate certificate;
  certificate.worker = "worker 3";
  certificate.status = {.signal = 9};
  const std::string headline = certificate.headline();
  certificate.cause = headline + " in environment 12";
  EXPECT_EQ(certificate.describe(), headline + " in environment 12");
  certificate.cause = "environment 12 did not finish its step";
  EXPECT_EQ(certificate.describe(), headline + "\nenvironment 12 did not finish its step");
}

TEST(WorkerDied, ASingleEnvironmentIsNamedInTheSingular) {
  DeathCertificate certificate;
  certificate.worker = "worker 0";
  certificate.first_env = 5;
  certificate.num_envs = 1;
  EXPECT_THAT(certificate.describe(), HasSubstr("environment 5)"));
}

}  // namespace
}  // namespace shoal::process
