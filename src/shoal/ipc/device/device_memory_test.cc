// Device memory between processes of a family, on the stand-in driver.
#include "shoal/ipc/device/device_memory.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shoal/ipc/testing/device_memory_peers.h"
#include "shoal/os/socket/packet.h"

namespace shoal::ipc::testing {
namespace {

using shm::cuda::DriverError;
using ::testing::HasSubstr;

TEST_F(DeviceMemoryTest, WhatWasGivenIsKeptUntilNobodyHoldsIt) {
  Peer peer([](Peer&, const StandIn& driver) {
    auto& memory = DeviceMemory::here();
    static std::atomic<int> freed = 0;
    DeviceView view = give(driver, freed);
    Block message = view.record;
    memory.release(std::move(view), kStream);
    memory.collect();
    EXPECT_EQ(freed, 0);
    EXPECT_EQ(memory.stats().left, 1U);
    DeviceView again = memory.open(message);
    EXPECT_EQ(*host(again), 0);
    message = {};
    memory.collect();
    EXPECT_EQ(freed, 0);
    memory.release(std::move(again), kStream);
    memory.collect();
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(memory.stats().given, 0U);
    EXPECT_EQ(memory.stats().left, 0U);
  });
}

TEST_F(DeviceMemoryTest, BothSidesSeeWhatTheOtherWrites) {
  Peer receiver([](Peer& test, const StandIn& driver) {
    DeviceView view = test.receive();
    EXPECT_STREQ(host(view), "from there");
    std::strcpy(host(view), "from here");
    test.go();
    test.wait();
    DeviceMemory::here().release(std::move(view), kStream);
    EXPECT_EQ(driver.count("opened_memory"), 0);
    test.go();
  });
  Peer giver([](Peer& test, const StandIn& driver) {
    static std::atomic<int> freed = 0;
    DeviceView view = give(driver, freed, "from there");
    test.send(view);
    test.wait();
    EXPECT_STREQ(host(view), "from here");
    DeviceMemory::here().release(std::move(view), kStream);
    DeviceMemory::here().collect();
    EXPECT_EQ(freed, 0);
    test.go();
    test.wait();
    DeviceMemory::here().collect();
    EXPECT_EQ(freed, 1);
  });
  Held held = hold(giver);
  pass(receiver, held);
  held = {};
  take_turns(receiver, giver);
}

TEST_F(DeviceMemoryTest, AKilledReceiverHoldsNothing) {
  Peer receiver([](Peer& test, const StandIn&) {
    const DeviceView view = test.receive();
    test.wait();
  });
  Peer giver([](Peer& test, const StandIn& driver) {
    static std::atomic<int> freed = 0;
    DeviceView view = give(driver, freed);
    test.send(view);
    DeviceMemory::here().release(std::move(view), kStream);
    DeviceMemory::here().collect();
    EXPECT_EQ(freed, 0);
    test.go();
    test.wait();
    Heap::here()->sweep();
    DeviceMemory::here().collect();
    EXPECT_EQ(freed, 1);
  });
  Held held = hold(giver);
  pass(receiver, held);
  held = {};
  giver.wait();
  receiver.kill();
  giver.go();
}

TEST_F(DeviceMemoryTest, WhatOthersLetGoIsFreedWithoutACall) {
  Peer giver([](Peer& test, const StandIn& driver) {
    auto& memory = DeviceMemory::here();
    const shm::cuda::Device::Current current(*memory.device(0));
    const auto base = driver.allocate(4096);
    const auto tell = [&](void*) {
      driver.free(base);
      test.go();
    };
    DeviceView view = memory.give(0, base, 4096, std::shared_ptr<void>(&test, tell));
    test.send(view);
    memory.release(std::move(view), kStream);
    test.wait();  // here it does nothing
    memory.finish();
  });
  {
    const Held held = hold(giver);
  }
  giver.wait();  // for tell()
  giver.go();
}

TEST_F(DeviceMemoryTest, WithoutABrokerThatOutlivesItsMakerASegmentIsGoneAndSaysSo) {
  Peer maker([](Peer& test, const StandIn&) {
    test.send(DeviceMemory::here().allocate(0, 100));
    test.wait();
  });
  const Held held = hold(maker);
  maker.kill();
  Peer receiver([](Peer& test, const StandIn&) {
    try {
      test.receive();
      ADD_FAILURE() << "no error";
    } catch (const MemoryGone& error) {
      EXPECT_THAT(error.what(), HasSubstr("descriptor"));
    }
    test.put('h');
  });
  pass(receiver, held);
}

TEST_F(DeviceMemoryTest, WhatTorchMadeIsGoneWithItsProcessAndSaysSo) {
  Peer receiver([](Peer& test, const StandIn&) {
    try {
      test.receive();
      ADD_FAILURE() << "no error";
    } catch (const MemoryGone& error) {
      EXPECT_THAT(error.what(), HasSubstr("share_memory_()"));
    }
    test.put('h');
  });
  Peer giver([](Peer& test, const StandIn& driver) {
    static std::atomic<int> freed = 0;
    test.send(give(driver, freed));
    test.wait();
  });
  const Held held = hold(giver);
  giver.kill();
  pass(receiver, held);
}

TEST_F(DeviceMemoryTest, ASegmentOutlivesTheProcessThatMadeItAndIsForwarded) {
  Peer keeper = broker();
  keeper.wait();
  Peer maker([](Peer& test, const StandIn&) {
    const DeviceView view = DeviceMemory::here().allocate(0, 100);
    std::strcpy(host(view), "still there");
    test.send(view);
    test.wait();
  });
  Held held = hold(maker);
  maker.kill();
  Heap::here()->sweep();
  Peer between([](Peer& test, const StandIn&) {
    const DeviceView view = test.receive();
    EXPECT_STREQ(host(view), "still there");
    test.send(view);
    test.wait();
  });
  pass(between, held);
  held = {};
  held = hold(between);
  between.kill();
  Heap::here()->sweep();
  Peer last([](Peer& test, const StandIn& driver) {
    DeviceView view = test.receive();
    EXPECT_STREQ(host(view), "still there");
    EXPECT_EQ(driver.count("mappings"), 1);
    DeviceMemory::here().release(std::move(view), kStream);
    EXPECT_EQ(driver.count("mappings"), 0);
    EXPECT_EQ(driver.count("allocations"), 0);
  });
  pass(last, held);
  keeper.go();
}

TEST_F(DeviceMemoryTest, ASegmentCrossesOnceForAllThatLiesInIt) {
  constexpr int kViews = 50;
  Peer keeper = broker();
  keeper.wait();
  Peer maker([](Peer& test, const StandIn& driver) {
    std::vector<DeviceView> views;
    for (int i = 0; i < kViews; ++i) {
      views.push_back(DeviceMemory::here().allocate(1, 1000));
      *host(views.back()) = static_cast<char>(i);
      test.send(views.back());
    }
    EXPECT_EQ(driver.count("exports"), 1);
    EXPECT_EQ(DeviceMemory::here().stats().segments, 1U);
    test.wait();
    while (!views.empty()) {
      DeviceMemory::here().release(std::move(views.back()), kStream);
      views.pop_back();
    }
    DeviceMemory::here().collect();
    EXPECT_EQ(DeviceMemory::here().stats().segments, 0U);
    EXPECT_EQ(driver.count("allocations"), 0);
  });
  Peer receiver([](Peer& test, const StandIn& driver) {
    std::vector<DeviceView> views;
    for (int i = 0; i < kViews; ++i) {
      views.push_back(test.receive());
      EXPECT_EQ(*host(views.back()), i);
      EXPECT_EQ(views.back().device->index(), 1);
    }
    EXPECT_EQ(driver.count("imports"), 1);
    for (DeviceView& view : views) DeviceMemory::here().release(std::move(view), kStream);
    EXPECT_EQ(driver.count("allocations"), 0);
    test.go();
  });
  for (int i = 0; i < kViews; ++i) pass(receiver, hold(maker));
  receiver.wait();
  maker.go();
  keeper.go();
}

TEST_F(DeviceMemoryTest, AReceptionThatFailsHoldsNothing) {
  Peer receiver([](Peer& test, const StandIn& driver) {
    for (const char* function :
         {"cuDevicePrimaryCtxRetain", "cuIpcOpenMemHandle_v2", "cuCtxPushCurrent_v2"}) {
      driver.fail(function, shm::cuda::abi::kOutOfMemory);
      EXPECT_THROW(test.receive(), DriverError) << function;
      test.put('h');
      EXPECT_EQ(Heap::here()->stats().held_here, 0U);
      EXPECT_EQ(driver.count("opened_memory"), 0);
    }
    DeviceMemory::here().release(test.receive(), kStream);
  });
  Peer giver([](Peer& test, const StandIn& driver) {
    static std::atomic<int> freed = 0;
    DeviceView view = give(driver, freed);
    test.send(view);
    test.wait();
    DeviceMemory::here().release(std::move(view), kStream);
  });
  Held held = hold(giver);
  for (int i = 0; i < 4; ++i) pass(receiver, held);
  held = {};
  giver.go();
}

TEST_F(DeviceMemoryTest, ADeviceThatTheReceiverDoesNotSeeIsNamed) {
  Peer receiver([](Peer& test, const StandIn&) {
    ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    try {
      test.receive();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("CUDA_VISIBLE_DEVICES"));
    }
    test.put('h');
    DeviceView view = test.receive();
    EXPECT_EQ(view.device->index(), 0);
    DeviceMemory::here().release(std::move(view), kStream);
  });
  Peer giver([](Peer& test, const StandIn&) {
    for (const int device : {0, 1}) {
      DeviceView view = DeviceMemory::here().allocate(device, 10);
      test.send(view);
      test.wait();
      DeviceMemory::here().release(std::move(view), kStream);
    }
  });
  for (int i = 0; i < 2; ++i) {
    pass(receiver, hold(giver));
    giver.go();
  }
}

TEST_F(DeviceMemoryTest, TheBrokerGivesAnotherUserNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Peer keeper = broker();
  keeper.wait();
  os::testing::Child stranger([id = Heap::here()->id()] {
    if (::setuid(65534) != 0) return 2;
    const os::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto to = os::abstract_address(fmt::format("shoal-broker-{:016x}", id));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.name), to.bytes) != 0)
      return 3;
    const std::array<std::uint64_t, 4> join{id, 4, 0, 0};
    const auto deadline = os::testing::test_deadline();
    static_cast<void>(os::send_packet(
        socket.get(), {.bytes = std::as_bytes(std::span(join)), .fds = {}}, deadline));
    std::byte answer;
    return ::recv(socket.get(), &answer, 1, 0) <= 0 ? 0 : 1;
  });
  EXPECT_EQ(stranger.join(), os::ProcessEnd{});
  keeper.go();
}

TEST_F(DeviceMemoryTest, TheBrokerDropsWhatNobodyHolds) {
  Peer keeper([](Peer& test, const StandIn&) {
    EXPECT_TRUE(open_descriptor_broker());
    test.put('d');
    test.wait();
    const Block block = Block::allocate(1);
    const auto left = block.offset();
    const auto serial = block.serial();
    leave_descriptor(block, 0);
    EXPECT_TRUE(fetch_descriptor(left, serial));
    EXPECT_FALSE(fetch_descriptor(left, serial + 1));
  });
  keeper.wait();
  EXPECT_FALSE(open_descriptor_broker());
  {
    const Block block = Block::allocate(1);
    EXPECT_EQ(Heap::here()->pid_of(leave_descriptor(block, 0)) > 0, true);
    EXPECT_TRUE(fetch_descriptor(block.offset(), block.serial()));
    const Block other = block;
    const auto offset = block.offset();
    const auto serial = block.serial();
    EXPECT_TRUE(fetch_descriptor(offset, serial));
  }
  look_at_descriptors();
  keeper.go();
}

}  // namespace
}  // namespace shoal::ipc::testing
