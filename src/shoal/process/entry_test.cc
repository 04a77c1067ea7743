#include "shoal/process/entry.h"

#include <gtest/gtest.h>

#include "shoal/os/error.h"
#include "shoal/process/start_method.h"

namespace shoal::process {
namespace {

TEST(EntryTable, FindsWhatWasAdded) {
  EntryTable table;
  table.add("seven", [](WorkerContext&) { return 7; });
  WorkerContext context;
  EXPECT_EQ(table.at("seven")(context), 7);
}

TEST(EntryTable, RefusesASecondEntryOfTheSameName) {
  EntryTable table;
  table.add("a", [](WorkerContext&) { return 0; });
  EXPECT_THROW(table.add("a", [](WorkerContext&) { return 1; }), InvalidArgument);
}

TEST(EntryTable, NamesTheEntriesThereAreWhenOneIsMissing) {
  EntryTable table;
  table.add("native-vector", [](WorkerContext&) { return 0; });
  try {
    table.at("python");
    FAIL() << "an unknown entry was found";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("'python'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("native-vector"), std::string::npos);
  }
}

TEST(StartMethod, NamesGoBothWays) {
  for (const char* text : {"auto", "fork", "forkserver", "spawn"}) {
    EXPECT_EQ(name(start_method_from_name(text)), text);
  }
}

TEST(StartMethod, NamesTheFourForAnythingElse) {
  try {
    start_method_from_name("thread");
    FAIL() << "'thread' was taken";
  } catch (const InvalidArgument& error) {
    for (const char* expected : {"'thread'", "'auto'", "'fork'", "'forkserver'", "'spawn'"}) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << expected;
    }
  }
}

}  // namespace
}  // namespace shoal::process
