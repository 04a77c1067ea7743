#include "shoal/learn/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "shoal/learn/checkpoint/durable_file.h"
#include "shoal/learn/testing/temporary_directory.h"
#include "shoal/os/testing/child.h"

namespace shoal::learn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointArrays arrays(float value) {
    values_ = {value, value + 1};
    const auto bytes = std::as_bytes(std::span(values_));
    const shm::TensorSpec spec{shm::DType::kF32, {2}};
    return {{{"actor.0.weight", spec, bytes}},
            {{"exp_avg.actor.0.weight", spec, bytes}},
            {{"obs", spec, bytes}}};
  }

  std::vector<std::string> names_in(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename());
    return names;
  }

  std::string error_of(Checkpoint::Part part = Checkpoint::Part::kAll) {
    try {
      Checkpoint::read(last_, part);
    } catch (const CorruptFile& error) {
      return error.what();
    }
    return "no error";
  }

  void put(const std::string& name, const std::string& text) {
    std::ofstream(last_ / name, std::ios::binary) << text;
  }

  TemporaryDirectory temporary_;
  fs::path last_ = temporary_.path() / "checkpoints" / "last";
  std::vector<float> values_;
};

TEST_F(CheckpointTest, ReadsBackWhatWasWritten) {
  write_checkpoint(last_, arrays(1), {{"step", 17}, {"best", 0.1}});
  const auto read = Checkpoint::read(last_, Checkpoint::Part::kAll);
  EXPECT_EQ(read.state["step"], 17);
  EXPECT_EQ(read.state["best"].get<double>(), 0.1);
  EXPECT_EQ(read.policy.at("actor.0.weight").bytes.size(), 8U);
  EXPECT_EQ(read.optimizer.tensors().size(), 1U);
  EXPECT_EQ(read.envs.tensors().size(), 1U);
  EXPECT_THAT(names_in(last_), UnorderedElementsAre("policy.safetensors", "optim.safetensors",
                                                    "envs.safetensors", "state.json"));
}

TEST_F(CheckpointTest, ReplacesTheOldOneAndLeavesNothingBeside) {
  for (float value : {1.0F, 2.0F, 3.0F}) write_checkpoint(last_, arrays(value), {{"step", value}});
  EXPECT_EQ(Checkpoint::read(last_, Checkpoint::Part::kAll).state["step"], 3);
  EXPECT_THAT(names_in(last_.parent_path()), UnorderedElementsAre("last"));
}

TEST_F(CheckpointTest, APolicyAloneCanBeReadButNotResumed) {
  auto policy = arrays(1);
  policy.optimizer.clear();
  policy.envs.clear();
  write_checkpoint(last_, policy, json::object());
  EXPECT_NO_THROW(Checkpoint::read(last_, Checkpoint::Part::kPolicy));
  EXPECT_THAT(error_of(), HasSubstr("can be evaluated, not resumed"));
}

TEST_F(CheckpointTest, WhatIsNotACheckpointIsOneClearError) {
  EXPECT_THAT(error_of(), HasSubstr("no such directory"));
  fs::create_directories(last_);
  EXPECT_THAT(error_of(), HasSubstr("no state.json"));
  put("state.json", "{");
  EXPECT_THAT(error_of(), HasSubstr("not a JSON object"));
  put("state.json", "{\"step\": 1}");
  EXPECT_THAT(error_of(), HasSubstr("not written by Shoal"));
  put("state.json", R"({"format": "shoal.checkpoint", "version": 99})");
  EXPECT_THAT(error_of(), HasSubstr("version 99"));
  EXPECT_THAT(error_of(), HasSubstr(last_.string()));
}

TEST_F(CheckpointTest, DamageIsNoticed) {
  for (const char* name : {"policy.safetensors", "optim.safetensors", "envs.safetensors"}) {
    write_checkpoint(last_, arrays(1), {{"step", 1}});
    auto bytes = read_file(last_ / name);
    bytes.back() ^= std::byte{1};
    write_file(last_ / name, bytes);
    EXPECT_THAT(error_of(), HasSubstr(std::string(name) + " is damaged"));
    fs::remove(last_ / name);
    EXPECT_THAT(error_of(), HasSubstr(std::string(name) + " is missing"));
  }
}

TEST_F(CheckpointTest, FilesOfTwoCheckpointsDoNotMix) {
  const auto other = temporary_.path() / "other";
  write_checkpoint(last_, arrays(1), {{"step", 1}});
  write_checkpoint(other, arrays(2), {{"step", 2}});
  fs::copy_file(other / "policy.safetensors", last_ / "policy.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of(Checkpoint::Part::kPolicy), HasSubstr("of another checkpoint"));
}

TEST_F(CheckpointTest, AFailedWriteKeepsTheOldOne) {
  write_checkpoint(last_, arrays(1), {{"step", 1}});
  auto broken = arrays(2);
  broken.envs[0].spec.shape = {3};
  EXPECT_THROW(write_checkpoint(last_, broken, {{"step", 2}}), InvalidArgument);
  EXPECT_EQ(Checkpoint::read(last_, Checkpoint::Part::kAll).state["step"], 1);
  EXPECT_THAT(names_in(last_.parent_path()), UnorderedElementsAre("last"));
}

TEST_F(CheckpointTest, WhatAKilledWriterLeftBehindIsRemoved) {
  write_checkpoint(last_, arrays(1), {{"step", 1}});
  fs::create_directories(last_.string() + ".tmp-12345");
  write_checkpoint(last_, arrays(2), {{"step", 2}});
  EXPECT_THAT(names_in(last_.parent_path()), UnorderedElementsAre("last"));
}

TEST_F(CheckpointTest, AWriterKilledBetweenTwoRenamesLeavesTheOldOneReadable) {
  write_checkpoint(last_, arrays(1), {{"step", 1}});
  fs::rename(last_, last_.string() + ".old");
  EXPECT_EQ(Checkpoint::read(last_, Checkpoint::Part::kAll).state["step"], 1);
  write_checkpoint(last_, arrays(2), {{"step", 2}});
  EXPECT_EQ(Checkpoint::read(last_, Checkpoint::Part::kAll).state["step"], 2);
  EXPECT_THAT(names_in(last_.parent_path()), UnorderedElementsAre("last"));
}

TEST_F(CheckpointTest, IsReadWholeWhileAnotherTakesItsPlace) {
  write_checkpoint(last_, arrays(0), {{"step", 0}});
  const os::testing::Child writer([&] {
    for (int step = 1;; ++step) write_checkpoint(last_, arrays(step), {{"step", step}});
    return 0;
  });
  int last = 0;
  for (int reads = 0; reads < 2000; ++reads) {
    const int step = Checkpoint::read(last_, Checkpoint::Part::kAll).state["step"];
    EXPECT_GE(step, last);
    last = step;
  }
  EXPECT_GT(last, 0);
}

TEST_F(CheckpointTest, ADirectoryThatCannotBeMadeIsASystemError) {
  std::ofstream(temporary_.path() / "file") << "x";
  EXPECT_THROW(write_checkpoint(temporary_.path() / "file" / "last", arrays(1), json::object()),
               SystemError);
}

TEST(DurableFile, ReplacesAFileAndReadsItBack) {
  const TemporaryDirectory temporary;
  const auto path = temporary.path() / "config.json";
  replace_file(path, std::string("first"));
  replace_file(path, std::string("second"));
  const auto bytes = read_file(path);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "second");
  EXPECT_THROW(read_file(temporary.path() / "none"), SystemError);
  EXPECT_THROW(read_file(temporary.path()), SystemError);
}

}  // namespace
}  // namespace shoal::learn
