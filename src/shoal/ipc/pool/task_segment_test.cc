#include "shoal/ipc/pool/task_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shoal/ipc/pool/task_slot.h"
#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(TaskSegment, RefusesWhatIsNone) {
  EXPECT_THROW(TaskSegment::create(0), InvalidArgument);
  EXPECT_THROW(TaskSegment::create(1, 5000), InvalidArgument);
  const shm::Arena other = shm::Arena::create("rows", 10'000);
  EXPECT_THROW(TaskSegment::attach(os::Fd(::dup(other.fd()))), Error);
}

TEST(TaskRing, GivesBackWhatWasWrittenInOrderWhereverTheEndOfTheRingIs) {
  const TaskSegment segment = TaskSegment::create(1, 4096);
  TaskRing ring = segment.tasks(0);
  std::mt19937 random(7);
  std::uint64_t written = 0, read = 0;
  std::vector<std::size_t> sizes;
  while (read < 20'000) {
    if (random() % 2 == 0 && written < 20'000) {
      const std::string text(random() % (ring.max_payload() + 1), static_cast<char>(written));
      TaskRecord head{};
      head.tag = written;
      if (ring.try_write(head, bytes_of(text)) != nullptr) {
        sizes.push_back(text.size());
        ++written;
      }
    } else if (TaskRecord* record = ring.front()) {
      ASSERT_EQ(record->tag, read);
      const auto payload = ring.payload(record);
      ASSERT_EQ(payload.size(), sizes[read]);
      for (const std::byte byte : payload) {
        ASSERT_EQ(byte, static_cast<std::byte>(static_cast<char>(read)));
      }
      ring.pop(record);
      ++read;
    }
  }
  EXPECT_EQ(ring.front(), nullptr);
}

TEST(TaskRing, WhatOneThreadWritesTheOtherReadsWhole) {
  const TaskSegment segment = TaskSegment::create(1, 4096);
  constexpr std::uint64_t kRecords = 20'000;
  const auto text_of = [](std::uint64_t tag) {
    return std::string(1 + tag * 7 % 900, static_cast<char>(tag));
  };
  std::thread producer([&] {
    TaskRing ring = segment.tasks(0);
    for (std::uint64_t tag = 0; tag < kRecords;) {
      TaskRecord head{};
      head.tag = tag;
      if (ring.try_write(head, bytes_of(text_of(tag))) != nullptr) {
        ++tag;
      } else {
        std::this_thread::yield();
      }
    }
  });
  TaskRing ring = segment.tasks(0);
  std::uint64_t right = 0;
  for (std::uint64_t read = 0; read < kRecords;) {
    TaskRecord* record = ring.front();
    if (record == nullptr) {
      std::this_thread::yield();
      continue;
    }
    const auto payload = ring.payload(record);
    const std::string text = text_of(read);
    right += record->tag == read && record->move_to(TaskRecord::kTaken) &&
             std::ranges::equal(payload, bytes_of(text));
    ring.pop(record);
    ++read;
  }
  producer.join();
  EXPECT_EQ(right, kRecords);
}

TEST(TaskRing, ARecordIsTakenOrRevokedAndNeverBoth) {
  const TaskSegment segment = TaskSegment::create(1, 4096);
  TaskRing ring = segment.tasks(0);
  TaskRecord* record = ring.try_write(TaskRecord{}, {});
  EXPECT_TRUE(record->move_to(TaskRecord::kTaken));
  EXPECT_FALSE(record->move_to(TaskRecord::kRevoked));
}

TEST(TaskSlot, LeavesWhenItsOwnerIsKilled) {
  // The owner of a segment is who made it: a child, which is killed; the slot is in this process.
  const shm::Arena mailbox = shm::Arena::create("mailbox", 64);
  auto* fd = mailbox.at<sync::SystemAtomics::Word>(0);
  os::testing::Child owner([&] {
    const TaskSegment mine = TaskSegment::create(1, 4096);
    fd->store(static_cast<std::uint32_t>(mine.fd()), std::memory_order_release);
    for (;;) ::pause();
    return 0;
  });
  while (fd->load(std::memory_order_acquire) == 0) ::usleep(1000);
  const std::string path = "/proc/" + std::to_string(owner.pid()) + "/fd/" + std::to_string(*fd);
  TaskSlot slot(os::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)), 0);
  EXPECT_EQ(slot.wait(os::deadline_after(std::chrono::milliseconds(1))),
            TaskSlot::Outcome::kTimedOut);
  owner.kill();
  EXPECT_EQ(slot.wait(os::testing::test_deadline()), TaskSlot::Outcome::kStopped);
}

}  // namespace
}  // namespace shoal::ipc
