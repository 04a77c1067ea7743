// Device memory between processes of a family, on the stand-in driver. The test itself holds
// blocks, as a queue would, and has no driver.
#include "shoal/ipc/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/ipc/descriptor_desk.h"
#include "shoal/os/socket.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/cuda/testing/stand_in.h"

namespace shoal::ipc {
namespace {

using shm::cuda::DriverError;
using shm::cuda::testing::StandIn;
using ::testing::HasSubstr;

constexpr shm::cuda::abi::Stream kStream = nullptr;

/// What a message names.
struct Sent {
  Offset record, record_serial, mark, mark_serial;
};

char* host(const DeviceView& view) { return reinterpret_cast<char*>(view.address); }

/// A process of the family with the stand-in, and a link to the test.
class Peer {
 public:
  using Body = std::function<void(Peer&, const StandIn&)>;

  explicit Peer(const Body& body) : ends_(os::SeqPacket::pair()) {
    child_.emplace([&] {
      ends_.first = std::move(ends_.second);
      const StandIn driver;
      body(*this, driver);
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
    ends_.second.close();
  }
  ~Peer() {
    if (child_) {
      EXPECT_EQ(child_->join(), os::ProcessEnd{});
    }
  }

  void kill() {
    child_->kill();
    child_.reset();
  }

  template <class T>
  void put(const T& value) {
    EXPECT_EQ(
        ends_.first.send(std::as_bytes(std::span(&value, 1)), {}, os::testing::test_deadline()),
        os::SendOutcome::kSent);
  }
  template <class T>
  T get() {
    os::Message message;
    EXPECT_EQ(ends_.first.recv(message, os::testing::test_deadline()), os::RecvOutcome::kMessage);
    T value{};
    EXPECT_EQ(message.bytes.size(), sizeof value);
    if (message.bytes.size() == sizeof value)
      std::memcpy(&value, message.bytes.data(), sizeof value);
    return value;
  }
  void go() { put('g'); }
  void wait() { get<char>(); }

  /// In the child: the view goes to the test, which holds it before this returns.
  void send(const DeviceView& view) {
    const Block mark = DeviceMemory::here().mark(view, kStream);
    put(Sent{view.record.offset(), view.record.serial(), mark ? mark.offset() : 0,
             mark ? mark.serial() : 0});
    wait();
  }
  DeviceView receive() {
    const auto sent = get<Sent>();
    DeviceView view = DeviceMemory::here().open(Block::acquire(sent.record, sent.record_serial));
    if (sent.mark != 0) {
      DeviceMemory::here().await(Block::acquire(sent.mark, sent.mark_serial), view, kStream);
    }
    put('h');
    return view;
  }

 private:
  std::pair<os::SeqPacket, os::SeqPacket> ends_;
  std::optional<os::testing::Child> child_;
};

/// In the test: what a peer sent, held as by a queue.
struct Held {
  Sent sent{};
  Block record, mark;
};

Held hold(Peer& peer) {
  Held held;
  held.sent = peer.get<Sent>();
  held.record = Block::acquire(held.sent.record, held.sent.record_serial);
  if (held.sent.mark != 0) held.mark = Block::acquire(held.sent.mark, held.sent.mark_serial);
  peer.go();
  return held;
}

void pass(Peer& peer, const Held& held) {
  peer.put(held.sent);
  peer.wait();
}

/// Memory as of torch's allocator, whose end is counted: perhaps by DeviceMemory's thread when the
/// peer's body has returned, so `freed` is static.
DeviceView give(const StandIn& driver, std::atomic<int>& freed, const char* text = "") {
  auto& memory = DeviceMemory::here();
  const shm::cuda::Device::Current current(*memory.device(0));
  const auto base = driver.allocate(1 << 16);
  std::strcpy(reinterpret_cast<char*>(base) + 512, text);
  const auto free = [driver, &freed, base](void*) {
    driver.free(base);
    ++freed;
  };
  return memory.give(0, base + 512, 1024, std::shared_ptr<void>(&freed, free));
}

class DeviceMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { Heap::here(); }
  void TearDown() override {
    Heap::here()->sweep();
    EXPECT_THAT(Heap::here()->check(), ::testing::IsEmpty());
    EXPECT_EQ(Heap::here()->stats().blocks, 0U);
  }
};

/// Has the desk until the test ends.
Peer desk() {
  return Peer([](Peer& test, const StandIn&) {
    EXPECT_TRUE(open_descriptor_desk());
    test.put('d');
    test.wait();
  });
}

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
  receiver.wait();
  giver.go();
  giver.wait();
  receiver.go();
  receiver.wait();
  giver.go();
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

TEST_F(DeviceMemoryTest, WithoutADeskThatOutlivesItsMakerASegmentIsGoneAndSaysSo) {
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
  Peer keeper = desk();
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
  Peer keeper = desk();
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
  receiver.wait();
  giver.go();
  giver.wait();
  receiver.go();
  receiver.wait();
  giver.go();
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

TEST_F(DeviceMemoryTest, TheDeskDropsWhatNobodyHolds) {
  Peer keeper([](Peer& test, const StandIn&) {
    EXPECT_TRUE(open_descriptor_desk());
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
  EXPECT_FALSE(open_descriptor_desk());
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
}  // namespace shoal::ipc
