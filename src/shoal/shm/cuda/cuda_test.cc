// Device memory, its handles and events, on the stand-in driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>

#include "shoal/os/socket/socket.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/cuda/event.h"
#include "shoal/shm/cuda/ipc_memory.h"
#include "shoal/shm/cuda/memory.h"
#include "shoal/shm/cuda/testing/stand_in.h"

namespace shoal::shm::cuda {
namespace {

using ::testing::HasSubstr;
using testing::StandIn;

/// Runs the checks in a child: a driver that is loaded stays in its process.
void in_child(const std::function<void(const StandIn&)>& checks) {
  os::testing::Child child([&] {
    const StandIn driver;
    checks(driver);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

char* host(abi::Address address) { return reinterpret_cast<char*>(address); }

/// A child with the stand-in that talks to the test over a socket.
class Peer {
 public:
  using Body = std::function<void(const StandIn&, os::SeqPacket&)>;
  explicit Peer(const Body& body) : ends_(os::SeqPacket::pair()) {
    child_.emplace([&] {
      ends_.first.close();
      const StandIn driver;
      body(driver, ends_.second);
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
    ends_.second.close();
  }
  os::SeqPacket& link() { return ends_.first; }
  void kill() { child_->kill(); }
  void expect_good_end() { EXPECT_EQ(child_->join(), os::ProcessEnd{}); }

 private:
  std::pair<os::SeqPacket, os::SeqPacket> ends_;
  std::optional<os::testing::Child> child_;
};

template <class T>
void put(os::SeqPacket& link, const T& value, std::initializer_list<int> fds = {}) {
  ASSERT_EQ(link.send(std::as_bytes(std::span(&value, 1)), {fds.begin(), fds.size()},
                      os::testing::test_deadline()),
            os::SendOutcome::kSent);
}

template <class T>
T get(os::SeqPacket& link, os::Fd* fd = nullptr) {
  os::Message message;
  EXPECT_EQ(link.recv(message, os::testing::test_deadline()), os::RecvOutcome::kMessage);
  T value{};
  if (message.bytes.size() == sizeof value) std::memcpy(&value, message.bytes.data(), sizeof value);
  if (fd != nullptr && !message.fds.empty()) *fd = std::move(message.fds[0]);
  return value;
}

TEST(CudaDriver, AMissingDriverIsNamed) {
  os::testing::Child child([] {
    try {
      Driver::get();
    } catch (const NoDriver& error) {
      EXPECT_THAT(error.what(), HasSubstr("libcuda.so.1"));
      return ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const DriverError&) {  // a machine with a driver and no device
    }
    return 0;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST(CudaDriver, AFailedCallSaysWhatWasTriedAndWhatTheDriverSaid) {
  in_child([](const StandIn& driver) {
    driver.fail("cuMemCreate", abi::kOutOfMemory);
    try {
      Memory::create(Device::open(0), 1);
      ADD_FAILURE() << "no error";
    } catch (const DriverError& error) {
      EXPECT_EQ(error.result(), abi::kOutOfMemory);
      EXPECT_THAT(error.what(), HasSubstr("2097152 bytes"));
      EXPECT_THAT(error.what(), HasSubstr("CUDA device 0"));
      EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"));
    }
  });
}

TEST(CudaDevice, AContextLivesAsLongAsItsDevice) {
  in_child([](const StandIn& driver) {
    EXPECT_EQ(Device::count(), 2);
    EXPECT_EQ(driver.count("contexts"), 0);
    {
      const auto first = Device::open(1);
      const auto second = Device::open(1);
      EXPECT_EQ(driver.count("contexts"), 1);
      EXPECT_EQ(Device::find(first->uuid()), 1);
      EXPECT_THAT(uuid_text(first->uuid()), HasSubstr("GPU-5a5a5a5a-5a5a-"));
    }
    EXPECT_EQ(driver.count("contexts"), 0);
    EXPECT_EQ(Device::find(abi::Uuid{}), -1);
    EXPECT_THROW(Device::open(2), InvalidArgument);
  });
}

TEST(CudaMemory, IsGivenBackWhole) {
  in_child([](const StandIn& driver) {
    {
      Memory memory = Memory::create(Device::open(0), 100);
      EXPECT_EQ(memory.bytes(), 2U << 20);
      EXPECT_EQ(Device::of_address(memory.address()), 0);
      std::memset(host(memory.address()), 7, memory.bytes());
      const Memory moved = std::move(memory);
      EXPECT_EQ(driver.count("mappings"), 1);
    }
    for (const char* what : {"allocations", "mappings", "reservations", "contexts"}) {
      EXPECT_EQ(driver.count(what), 0) << what;
    }
  });
}

TEST(CudaMemory, AnyFailureOnTheWayLeavesNothing) {
  in_child([](const StandIn& driver) {
    const auto device = Device::open(0);
    for (const char* function :
         {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
          "cuMemGetAllocationGranularity", "cuDeviceGetAttribute", "cuCtxPushCurrent_v2"}) {
      driver.fail(function, abi::kInvalidValue);
      EXPECT_THROW(Memory::create(device, 1), DriverError) << function;
    }
    const Memory source = Memory::create(device, 1);
    const os::Fd fd = source.export_fd();
    for (const char* function :
         {"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
      driver.fail(function, abi::kInvalidValue);
      EXPECT_THROW(Memory::import(device, fd.get(), source.bytes()), DriverError) << function;
    }
    EXPECT_EQ(driver.count("allocations"), 1);
    EXPECT_EQ(driver.count("mappings"), 1);
    EXPECT_EQ(driver.count("reservations"), 1);
  });
}

TEST(CudaMemory, OutlivesTheProcessThatMadeIt) {
  Peer maker([](const StandIn&, os::SeqPacket& link) {
    const Memory memory = Memory::create(Device::open(0), 1);
    std::strcpy(host(memory.address()), "still there");
    const os::Fd fd = memory.export_fd();
    put(link, memory.bytes(), {fd.get()});
    get<char>(link);
  });
  os::Fd fd;
  const auto bytes = get<std::uint64_t>(maker.link(), &fd);
  maker.kill();
  in_child([&](const StandIn&) {
    const Memory memory = Memory::import(Device::open(0), fd.get(), bytes);
    EXPECT_STREQ(host(memory.address()), "still there");
  });
}

TEST(CudaIpcMemory, IsSeenByAnotherProcessAtItsOffset) {
  Peer maker([](const StandIn& driver, os::SeqPacket& link) {
    const auto device = Device::open(0);
    const Device::Current current(*device);
    const abi::Address base = driver.allocate(1 << 20);
    std::strcpy(host(base) + 4096, "from there");
    const IpcPlace place = ipc_place_of(*device, base + 4096);
    EXPECT_EQ(place.offset, 4096U);
    EXPECT_THROW(IpcMemory(device, place.handle), DriverError);  // its own
    put(link, place);
    get<char>(link);
    EXPECT_STREQ(host(base) + 4096, "from here");
    driver.free(base);
  });
  const auto place = get<IpcPlace>(maker.link());
  in_child([&](const StandIn& driver) {
    const auto device = Device::open(0);
    {
      const IpcMemory memory(device, place.handle);
      EXPECT_STREQ(host(memory.address() + place.offset), "from there");
      std::strcpy(host(memory.address() + place.offset), "from here");
      EXPECT_EQ(driver.count("opened_memory"), 1);
    }
    EXPECT_EQ(driver.count("opened_memory"), 0);
  });
  put(maker.link(), 'x');
  maker.expect_good_end();
  in_child([&](const StandIn&) {
    EXPECT_THROW(IpcMemory(Device::open(0), place.handle), DriverError);  // its owner is gone
  });
}

TEST(CudaIpcMemory, MemoryThatCannotCrossIsRefusedWithTheWayOut) {
  in_child([](const StandIn&) {
    const auto device = Device::open(0);
    const Memory memory = Memory::create(device, 1);
    try {
      ipc_place_of(*device, memory.address());
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("expandable"));
      EXPECT_THAT(error.what(), HasSubstr("share_memory_()"));
    }
  });
}

TEST(CudaEvent, HoldsBackAStreamOfAnotherProcessAndNotItsHost) {
  Peer maker([](const StandIn& driver, os::SeqPacket& link) {
    const auto device = Device::open(0);
    Event event = Event::create_shared(device);
    EXPECT_TRUE(event.done());
    driver.hold();
    event.record(nullptr);
    EXPECT_FALSE(event.done());
    put(link, event.handle());
    get<char>(link);
    driver.go();
    EXPECT_TRUE(event.done());
    get<char>(link);
  });
  const auto handle = get<abi::IpcHandle>(maker.link());
  in_child([&](const StandIn& driver) {
    const auto device = Device::open(0);
    {
      const Event theirs = Event::open(device, handle);
      Event ours = Event::create(device);
      theirs.hold_back(nullptr);
      ours.record(nullptr);
      EXPECT_FALSE(ours.done());
      put(maker.link(), 'x');
      ours.wait();
      EXPECT_TRUE(theirs.done());
    }
    EXPECT_EQ(driver.count("events"), 0);
    EXPECT_EQ(driver.count("opened_events"), 0);
    EXPECT_EQ(driver.count("contexts"), 1);
  });
  put(maker.link(), 'x');
  maker.expect_good_end();
}

}  // namespace
}  // namespace shoal::shm::cuda
