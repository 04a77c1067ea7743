#include "shoal/os/memory_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

namespace shoal::os {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

class OomWatchTest : public ::testing::Test {
 protected:
  OomWatchTest() {
    fs::create_directories(root_);
    write(root_ / "proc/vmstat", "nr_free_pages 10\noom_kill 4\nother 3\n");
  }
  ~OomWatchTest() override { fs::remove_all(root_); }

  const fs::path root_ =
      fs::temp_directory_path() / ("shoal_oom_watch_" + std::to_string(::getpid()));
};

TEST(MemoryUse, CountsOwnMemoryAndNotThatOfAProcessThatIsGone) {
  const MemoryUse before = memory_use(::getpid());
  std::vector<char> memory(64 << 20, 'x');
  const MemoryUse after = memory_use(::getpid());
  EXPECT_GE(after.own_bytes, before.own_bytes + (60u << 20)) << memory[5];
  EXPECT_LE(after.own_bytes, after.resident_bytes);
  EXPECT_EQ(memory_use(1 << 30).resident_bytes, 0U);
}

TEST_F(OomWatchTest, NamesTheCountThatRoseOnce) {
  OomWatch watch(root_);
  EXPECT_FALSE(watch.evidence());
  write(root_ / "proc/vmstat", "nr_free_pages 10\noom_kill 5\nother 3\n");
  EXPECT_THAT(watch.evidence().value_or(""), HasSubstr("vmstat rose from 4 to 5"));
  EXPECT_FALSE(watch.evidence());
}

TEST_F(OomWatchTest, WithoutAnyFileThereIsNoEvidence) {
  OomWatch watch(root_ / "nothing");
  EXPECT_FALSE(watch.evidence());
}

}  // namespace
}  // namespace shoal::os
