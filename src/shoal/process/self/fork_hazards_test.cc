#include "shoal/process/self/fork_hazards.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <string>
#include <thread>

#include "shoal/os/testing/child.h"
#include "shoal/process/self/gpu_use.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/process/testing/entries.h"

namespace shoal::process {
namespace {

using ::testing::HasSubstr;

/// Loads one of the stand-ins; for ever, so only in a child.
void* load(const std::string& file) {
  void* library = ::dlopen((std::string(SHOAL_STAND_INS) + "/" + file).c_str(), RTLD_NOW);
  if (library == nullptr) throw Error(::dlerror());
  return library;
}

/// Runs the checks in a child, so that what it loads or starts does not reach the other tests.
void in_child(const std::function<void()>& checks) {
  os::testing::Child child([&] {
    checks();
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST(ForkHazards, ThereAreNoneInASmallProcess) {
  EXPECT_THAT(fork_hazards(), ::testing::IsEmpty());
}

TEST(ForkHazards, ALoadedDriverIsHarmlessUntilItIsInitialised) {
  in_child([] {
    void* driver = load("libcuda.so.1");
    EXPECT_FALSE(cuda_initialised());
    EXPECT_FALSE(gpu_in_use());
    EXPECT_THAT(fork_hazards(), ::testing::IsEmpty());
    reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"))(0);
    EXPECT_TRUE(cuda_initialised());
    EXPECT_THAT(gpu_in_use().value_or(""), HasSubstr("2 device"));
    EXPECT_THAT(fork_hazards(), ::testing::ElementsAre(HasSubstr("CUDA is initialised")));
  });
}

TEST(ForkHazards, MpiIsNamed) {
  in_child([] {
    load("libmpi.so.40");
    EXPECT_THAT(fork_hazards(), ::testing::ElementsAre(HasSubstr("MPI is loaded")));
  });
}

TEST(ForkHazards, NcclIsHarmlessUntilItIsUsed) {
  in_child([] {
    void* driver = load("libcuda.so.1");
    load("libnccl.so.2");
    EXPECT_THAT(fork_hazards(), ::testing::IsEmpty());
    reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"))(0);
    EXPECT_THAT(fork_hazards(), ::testing::ElementsAre(HasSubstr("CUDA is initialised")));
  });
}

TEST(ForkHazards, OtherThreadsAreCountedAndNamed) {
  std::promise<void> leave;
  std::promise<void> named;
  std::thread other([&] {
    ::pthread_setname_np(::pthread_self(), "stranger");
    named.set_value();
    leave.get_future().get();
  });
  named.get_future().get();
  EXPECT_THAT(fork_hazards(), ::testing::ElementsAre(::testing::AllOf(
                                  HasSubstr("1 other thread is alive"), HasSubstr("stranger"))));
  leave.set_value();
  other.join();
  EXPECT_THAT(fork_hazards(), ::testing::IsEmpty());
}

TEST(ForkHazards, AThreadThatWasJoinedIsNone) {
  for (int i = 0; i < 2000; ++i) {
    std::thread([] {}).join();
    ASSERT_THAT(fork_hazards(), ::testing::IsEmpty()) << "after " << i << " threads";
  }
}

TEST(ForkHazards, APoolThatEndsItselfBeforeAForkIsNone) {
  in_child([] {
    void* openblas = load("libscipy_openblas64_.so");
    EXPECT_THAT(fork_hazards(), ::testing::IsEmpty());
    reinterpret_cast<void (*)(int)>(::dlsym(openblas, "scipy_openblas_set_num_threads64_"))(2);
    std::promise<void> leave;
    std::thread other([&] { leave.get_future().get(); });
    EXPECT_THAT(fork_hazards(), ::testing::ElementsAre(HasSubstr("1 other thread is alive")));
    leave.set_value();
    other.join();
    EXPECT_THAT(fork_hazards(), ::testing::IsEmpty());
  });
}

TEST(ForkHazards, ADeclaredThreadCountsOnlyWhileItIsDeclared) {
  std::promise<void> declared;
  std::promise<void> undeclare;
  std::promise<void> undeclared;
  std::promise<void> leave;
  std::thread other([&] {
    {
      const OwnThread own;
      declared.set_value();
      undeclare.get_future().get();
    }
    undeclared.set_value();
    leave.get_future().get();
  });
  declared.get_future().get();
  EXPECT_THAT(fork_hazards(), ::testing::IsEmpty());
  undeclare.set_value();
  undeclared.get_future().get();
  EXPECT_THAT(fork_hazards(), ::testing::SizeIs(1));
  leave.set_value();
  other.join();
}

TEST(ForkHazards, ForkIsRefusedWithEveryCauseAndTheWayOut) {
  in_child([] {
    auto* driver = load("libcuda.so.1");
    reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"))(0);
    load("libmpi.so.40");
    try {
      Launcher::create(testing::options(StartMethod::kFork));
      FAIL() << "fork was not refused";
    } catch (const ForkRefused& refused) {
      EXPECT_THAT(refused.what(), HasSubstr("CUDA is initialised"));
      EXPECT_THAT(refused.what(), HasSubstr("MPI is loaded"));
      EXPECT_THAT(refused.what(), HasSubstr("'forkserver'"));
      EXPECT_THAT(refused.what(), HasSubstr("allow_unsafe_fork"));
    }
  });
}

TEST(ForkHazards, AHazardThatComesLaterIsSeenByStart) {
  in_child([] {
    auto launcher = Launcher::create(testing::options(StartMethod::kFork));
    load("libmpi.so.40");
    std::vector<WorkerSpec> specs;
    specs.push_back(testing::spec("exit", "0"));
    EXPECT_THROW(launcher->start(std::move(specs)), ForkRefused);
  });
}

TEST(ForkHazards, TheOverrideForks) {
  in_child([] {
    load("libmpi.so.40");
    LaunchOptions options = testing::options(StartMethod::kFork);
    options.allow_unsafe_fork = true;
    auto launcher = Launcher::create(std::move(options));
    std::vector<WorkerSpec> specs;
    specs.push_back(testing::spec("exit", "5"));
    auto workers = launcher->start(std::move(specs));
    EXPECT_EQ(workers[0]->join(std::chrono::seconds(30)), ExitStatus{.code = 5});
  });
}

TEST(ForkHazards, OtherMethodsTakeNoNotice) {
  in_child([] {
    auto* driver = load("libcuda.so.1");
    reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"))(0);
    load("libmpi.so.40");
    for (const StartMethod method : {StartMethod::kForkserver, StartMethod::kSpawn}) {
      auto launcher = Launcher::create(testing::options(method));
      std::vector<WorkerSpec> specs;
      specs.push_back(testing::spec("exit", "6"));
      auto workers = launcher->start(std::move(specs));
      EXPECT_EQ(workers[0]->join(std::chrono::seconds(30)), ExitStatus{.code = 6});
    }
  });
}

}  // namespace
}  // namespace shoal::process
