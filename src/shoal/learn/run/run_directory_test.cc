#include "shoal/learn/run/run_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "shoal/learn/checkpoint/checkpoint.h"
#include "shoal/learn/testing/temporary_directory.h"

namespace shoal::learn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using Mode = RunDirectory::Mode;

class RunDirectoryTest : public testing::Test {
 protected:
  std::string text_of(const char* name) {
    std::ifstream file(run_ / name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  TemporaryDirectory temporary_;
  fs::path run_ = temporary_.path() / "runs" / "one";
};

TEST_F(RunDirectoryTest, OneWriterAtATime) {
  std::optional<RunDirectory> first(std::in_place, run_, Mode::kNew);
  EXPECT_THROW(RunDirectory(run_, Mode::kNew), InvalidState);
  first->release();
  EXPECT_NO_THROW(RunDirectory(run_, Mode::kNew));
}

TEST_F(RunDirectoryTest, WhoLooksWhetherItIsTakenIsWaitedFor) {
  std::optional<RunDirectory> first(std::in_place, run_, Mode::kNew);
  first->release();
  const int fd = ::open((run_ / "lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_SH), 0);
  std::jthread looks_no_longer([fd] { ::close(fd); });
  EXPECT_NO_THROW(RunDirectory(run_, Mode::kNew));
}

TEST_F(RunDirectoryTest, AForkedChildNeitherKeepsTheLockNorLetsGoOfIt) {
  std::optional<RunDirectory> first(std::in_place, run_, Mode::kNew);
  const pid_t child = ::fork();
  if (child == 0) {
    first->release();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_THROW(RunDirectory(run_, Mode::kNew), InvalidState);

  const pid_t other = ::fork();
  if (other == 0) {
    ::pause();
    ::_exit(0);
  }
  first->release();
  EXPECT_NO_THROW(RunDirectory(run_, Mode::kNew));
  ::kill(other, SIGKILL);
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
}

TEST_F(RunDirectoryTest, ANewRunDoesNotOverwriteOneAndAResumeNeedsOne) {
  EXPECT_THROW(RunDirectory(run_, Mode::kResume), InvalidArgument);
  EXPECT_FALSE(fs::exists(run_));
  fs::create_directories(run_ / "checkpoints" / "last");
  EXPECT_THROW(RunDirectory(run_, Mode::kNew), InvalidArgument);
  EXPECT_NO_THROW(RunDirectory(run_, Mode::kResume));
}

TEST_F(RunDirectoryTest, ANewRunHasNothingOfOneThatWasKilledBeforeItsFirstCheckpoint) {
  const auto leave = [&] {
    for (const char* name : {"best", "best.old", "best.tmp-1"})
      fs::create_directories(run_ / "checkpoints" / name);
    std::ofstream(run_ / "result.json") << "{}";
  };
  leave();
  static_cast<void>(RunDirectory(run_, Mode::kNew));
  EXPECT_TRUE(fs::exists(run_ / "checkpoints" / "best")) << "no run was in it";
  RunDirectory(run_, Mode::kNew).write_config({{"config", json::object()}});
  leave();
  static_cast<void>(RunDirectory(run_, Mode::kNew));
  EXPECT_TRUE(fs::is_empty(run_ / "checkpoints"));
  EXPECT_FALSE(fs::exists(run_ / "result.json"));
}

TEST_F(RunDirectoryTest, AResumedRunDropsTheProgressThatItMakesAgain) {
  {
    RunDirectory directory(run_, Mode::kNew);
    directory.start_progress(0);
    for (int step : {10, 20, 20, 30}) directory.append_progress({step, 0.5, {{"x", 1.5}}});
  }
  std::ofstream(run_ / "progress.jsonl", std::ios::app) << "{\"step\": 40, \"x\"";
  RunDirectory directory(run_, Mode::kNew);
  directory.start_progress(20);
  directory.append_progress({25, 0.75, {}});
  EXPECT_EQ(text_of("progress.jsonl"),
            "{\"step\":10,\"seconds\":0.5,\"x\":1.5}\n"
            "{\"step\":20,\"seconds\":0.5,\"x\":1.5}\n"
            "{\"step\":20,\"seconds\":0.5,\"x\":1.5}\n"
            "{\"step\":25,\"seconds\":0.75}\n");
  directory.start_progress(0);
  EXPECT_EQ(text_of("progress.jsonl"), "");
}

TEST_F(RunDirectoryTest, ConfigIsReadBackAndForeignOnesAreErrors) {
  EXPECT_THROW(read_run_config(run_), CorruptFile);
  RunDirectory(run_, Mode::kNew).write_config({{"env", "CartPole-v1"}});
  EXPECT_EQ(read_run_config(run_)["env"], "CartPole-v1");
  for (const char* text : {"", "[]", "{}", R"({"format": "shoal.run", "version": 7})"}) {
    std::ofstream(run_ / "config.json") << text;
    EXPECT_THROW(read_run_config(run_), CorruptFile) << text;
  }
}

TEST_F(RunDirectoryTest, WhereThereIsAFileThereIsNoDirectory) {
  std::ofstream(temporary_.path() / "file") << "x";
  EXPECT_THROW(RunDirectory(temporary_.path() / "file" / "run", Mode::kNew), SystemError);
}

}  // namespace
}  // namespace shoal::learn
