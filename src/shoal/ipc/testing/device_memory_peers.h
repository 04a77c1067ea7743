// For tests of device memory: processes of a family on the stand-in driver. The test itself holds
// blocks, as a queue would, and has no driver.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/ipc/device/device_memory.h"
#include "shoal/ipc/heap/descriptor_broker.h"
#include "shoal/os/socket/socket.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/cuda/testing/stand_in.h"

namespace shoal::ipc::testing {

using shm::cuda::testing::StandIn;

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

inline Held hold(Peer& peer) {
  Held held;
  held.sent = peer.get<Sent>();
  held.record = Block::acquire(held.sent.record, held.sent.record_serial);
  if (held.sent.mark != 0) held.mark = Block::acquire(held.sent.mark, held.sent.mark_serial);
  peer.go();
  return held;
}

inline void pass(Peer& peer, const Held& held) {
  peer.put(held.sent);
  peer.wait();
}

/// The receiver's turn, the giver's, and each one's last.
inline void take_turns(Peer& receiver, Peer& giver) {
  receiver.wait();
  giver.go();
  giver.wait();
  receiver.go();
  receiver.wait();
  giver.go();
}

/// Memory as of torch's allocator, whose end is counted: perhaps by DeviceMemory's thread when the
/// peer's body has returned, so `freed` is static.
inline DeviceView give(const StandIn& driver, std::atomic<int>& freed, const char* text = "") {
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

/// Has the broker until the test ends.
inline Peer broker() {
  return Peer([](Peer& test, const StandIn&) {
    EXPECT_TRUE(open_descriptor_broker());
    test.put('d');
    test.wait();
  });
}

}  // namespace shoal::ipc::testing
