// Device memory, and the streams and graphs of those who send and receive it.
#include "shoal/ipc/testing/device_memory_peers.h"

namespace shoal::ipc::testing {
namespace {

TEST_F(DeviceMemoryTest, TheReceiversStreamWaitsForTheSendersAndNobodysHost) {
  Peer receiver([](Peer& test, const StandIn& driver) {
    DeviceView view = test.receive();
    EXPECT_EQ(driver.count("stream_waits"), 1);
    DeviceMemory::here().release(std::move(view), kStream);  // behind the sender's work
    EXPECT_EQ(DeviceMemory::here().stats().releasing, 1U);
    EXPECT_EQ(driver.count("opened_memory"), 1);
    test.go();
    test.wait();
    DeviceMemory::here().collect();
    EXPECT_EQ(DeviceMemory::here().stats().releasing, 0U);
    EXPECT_EQ(driver.count("opened_memory"), 0);
    EXPECT_EQ(driver.count("host_waits"), 0);
    test.go();
  });
  Peer giver([](Peer& test, const StandIn& driver) {
    static std::atomic<int> freed = 0;
    DeviceView view = give(driver, freed);
    driver.hold(kStream);
    test.send(view);
    EXPECT_EQ(DeviceMemory::here().stats().marks, 1U);
    test.wait();
    driver.go(kStream);
    DeviceMemory::here().collect();
    EXPECT_EQ(DeviceMemory::here().stats().marks, 0U);
    test.go();
    test.wait();
    DeviceMemory::here().release(std::move(view), kStream);
    EXPECT_EQ(driver.count("host_waits"), 0);
    EXPECT_EQ(driver.count("events"), 1);
    EXPECT_EQ(freed, 1);
  });
  Held held = hold(giver);
  EXPECT_TRUE(held.mark);
  pass(receiver, held);
  held = {};
  take_turns(receiver, giver);
}

TEST_F(DeviceMemoryTest, AMessageOfWorkThatIsDoneHasNoMark) {
  Peer giver([](Peer& test, const StandIn& driver) {
    static std::atomic<int> freed = 0;
    DeviceView view = give(driver, freed);
    test.send(view);
    DeviceMemory::here().release(std::move(view), kStream);
    test.wait();
  });
  EXPECT_FALSE(hold(giver).mark);
  giver.go();
}

TEST_F(DeviceMemoryTest, TheSenderLeavesOnlyWhenItsWorkIsDone) {
  Peer giver([](Peer& test, const StandIn& driver) {
    const auto stream = [&] {
      const shm::cuda::Device::Current current(*DeviceMemory::here().device(0));
      return driver.stream();
    }();
    static std::atomic<int> freed = 0;
    DeviceView view = give(driver, freed);
    driver.hold(stream);
    const Block mark = DeviceMemory::here().mark(view, stream);
    EXPECT_TRUE(mark);
    driver.go(stream);
    DeviceMemory::here().finish();
    EXPECT_EQ(driver.count("host_waits"), 1);
    EXPECT_FALSE(DeviceMemory::here().mark(view, stream));
    DeviceMemory::here().release(std::move(view), kStream);
    test.go();
  });
  giver.wait();
}

TEST_F(DeviceMemoryTest, NothingGrowsWithTheNumberOfSends) {
  Peer giver([](Peer&, const StandIn& driver) {
    auto& memory = DeviceMemory::here();
    const auto blocks = Heap::here()->stats().blocks;
    static std::atomic<int> freed = 0;
    for (int i = 0; i < 5000; ++i) {
      if (i % 7 == 0) driver.hold(kStream);
      DeviceView view = i % 2 == 0 ? give(driver, freed) : memory.allocate(0, 4096);
      const Block mark = memory.mark(view, kStream);
      DeviceView received = memory.open(view.record);
      if (mark) memory.await(mark, received, kStream);
      memory.release(std::move(view), kStream);
      memory.release(std::move(received), kStream);
      if (i % 7 == 3) driver.go(kStream);
    }
    driver.go(kStream);
    memory.collect();
    const DeviceMemoryStats stats = memory.stats();
    EXPECT_EQ(stats.given + stats.left + stats.releasing + stats.mapped + stats.marks, 0U);
    EXPECT_EQ(freed, 2500);
    EXPECT_EQ(driver.count("legacy"), 0);
    EXPECT_LE(driver.count("events"), 40);
    EXPECT_EQ(driver.count("host_waits"), 0);
    EXPECT_EQ(Heap::here()->stats().blocks, blocks);
  });
}

TEST_F(DeviceMemoryTest, AReleaseWhileAGraphIsRecordedWaitsForItsEnd) {
  Peer peer([](Peer&, const StandIn& driver) {
    auto& memory = DeviceMemory::here();
    DeviceView view = memory.allocate(0, 10);
    driver.capture(true);
    EXPECT_THROW(static_cast<void>(memory.mark(view, kStream)), InvalidState);
    memory.release(std::move(view), kStream);
    memory.collect();
    EXPECT_EQ(memory.stats().releasing, 1U);
    driver.capture(false);
    memory.collect();
    EXPECT_EQ(memory.stats().releasing, 0U);
    EXPECT_EQ(memory.stats().given, 0U);
  });
}

TEST_F(DeviceMemoryTest, NothingIsAskedOfTheDriverThatBreaksAGraph) {
  Peer peer([](Peer&, const StandIn& driver) {
    auto& memory = DeviceMemory::here();
    driver.hold(kStream);
    DeviceView view = memory.allocate(0, 10);
    EXPECT_TRUE(memory.mark(view, kStream));
    memory.release(std::move(view), kStream);  // its event is under way now
    driver.capture(true);
    driver.go(kStream);
    memory.collect();
    EXPECT_EQ(memory.stats().releasing, 0U);
    EXPECT_EQ(memory.stats().segments, 0U);
    EXPECT_EQ(driver.count("broken_graphs"), 0);
  });
}

}  // namespace
}  // namespace shoal::ipc::testing
