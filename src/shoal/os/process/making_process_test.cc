#include "shoal/os/process/making_process.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using testing::Child;

TEST(MakingProcess, AForkedChildIsAnother) {
  const MakingProcess made;
  EXPECT_TRUE(made.is_this());
  EXPECT_NO_THROW(made.require("the pool"));
  Child child([&] {
    if (made.is_this()) return 1;
    try {
      made.require("the pool");
    } catch (const InvalidState& error) {
      const std::string text = error.what();
      return text.find("the pool belongs to process") == std::string::npos ? 2 : 0;
    }
    return 3;
  });
  const auto end = child.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(*end, (ProcessEnd{.code = 0}));
}

TEST(MakingProcess, AThreadThatIsNotHereIsAbandoned) {
  struct Worker {
    ~Worker() {
      if (made.is_this())
        thread.join();
      else
        abandon(std::move(thread));
    }
    MakingProcess made;
    std::thread thread;
  };
  const auto worker = std::make_unique<Worker>();
  worker->thread = std::thread([] {});
  Child child([&] {
    worker->~Worker();
    return 0;
  });
  const auto end = child.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(*end, (ProcessEnd{.code = 0}));
}

}  // namespace
}  // namespace shoal::os
