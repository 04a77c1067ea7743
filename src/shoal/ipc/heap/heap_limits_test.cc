// A heap where there is little of something: address space, file size, descriptors, /dev/shm,
// memory. Each in a process of its own, which makes a heap of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "shoal/ipc/heap/block.h"
#include "shoal/os/limits/cgroup.h"
#include "shoal/os/memory/memory_use.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

using os::testing::Child;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kSkip = 77;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr auto kNoLimit = "a sanitizer takes terabytes of address space, which this test limits";

void set_limit(int resource, std::uint64_t value) {
  const rlimit limit{value, value};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) {
    throw SystemError("set a limit");
  }
}

void limit_address_space(std::uint64_t more) {
  set_limit(RLIMIT_AS, os::memory_use(::getpid()).virtual_bytes + more);
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "no \"%s\" in: %s\n", part.c_str(), text.c_str());
  return false;
}

/// Blocks of some sizes work, and one that is too large is an error that names `part`.
int use_heap(std::uint64_t too_large, const std::string& part) {
  std::vector<Block> blocks;
  for (int i = 0; i < 1000; ++i) {
    blocks.push_back(Block::allocate(static_cast<std::size_t>(i) * 7));
    std::fill_n(blocks.back().data(), blocks.back().size(), std::byte{1});
  }
  try {
    const Block block = Block::allocate(too_large);
    return 10;
  } catch (const OutOfMemory& error) {
    if (!contains(error.what(), std::to_string(too_large)) || !contains(error.what(), part)) {
      return 11;
    }
  }
  return Heap::here()->check().empty() ? 0 : 12;
}

void in_child(const std::function<int()>& body) {
  Child child(body);
  const auto end = child.join();
  ASSERT_TRUE(end.has_value());
  if (*end == os::ProcessEnd{.code = kSkip}) GTEST_SKIP() << "not allowed here";
  EXPECT_EQ(end->signal, 0);
  EXPECT_EQ(end->code, 0);
}

TEST(HeapLimits, ItFitsIntoALittleAddressSpace) {
  if (kSanitized) GTEST_SKIP() << kNoLimit;
  in_child([] {
    limit_address_space(256 * kMiB);
    if (Heap::here()->stats().bytes > 256 * kMiB) return 1;
    return use_heap(300 * kMiB, "ulimit -v");
  });
}

TEST(HeapLimits, WithoutAddressSpaceItIsAnErrorThatNamesTheLimit) {
  if (kSanitized) GTEST_SKIP() << kNoLimit;
  in_child([] {
    limit_address_space(4 * kMiB);
    try {
      Heap::here();
      return 1;
    } catch (const SystemError& error) {
      return contains(error.what(), "ulimit -v") && !Heap::exists() ? 0 : 2;
    }
  });
}

TEST(HeapLimits, AttachingWithoutAddressSpaceIsAnErrorThatNamesTheLimit) {
  if (kSanitized) GTEST_SKIP() << kNoLimit;
  in_child([] {
    const auto family = HeapSegment::create(0);
    limit_address_space(64 * kMiB);
    try {
      Heap::attach(os::Fd::duplicate(family.memfd().fd()));
      return 1;
    } catch (const SystemError& error) {
      return contains(error.what(), "ulimit -v") &&
                     contains(error.what(), std::to_string(family.bytes()))
                 ? 0
                 : 2;
    }
  });
}

TEST(HeapLimits, ItFitsIntoTheLargestFile) {
  in_child([] {
    set_limit(RLIMIT_FSIZE, 64 * kMiB);
    if (Heap::here()->stats().bytes > 64 * kMiB) return 1;
    return use_heap(70 * kMiB, "ulimit -f");
  });
}

TEST(HeapLimits, AHundredThousandBlocksNeedOneDescriptor) {
  in_child([] {
    set_limit(RLIMIT_NOFILE, 64);
    std::vector<Block> blocks;
    for (int i = 0; i < 100'000; ++i) {
      blocks.push_back(Block::allocate(static_cast<std::size_t>(i % 500)));
    }
    const Block one = blocks[4321];
    Child child([&] { return one.heap()->stats().held_here == 100'000 ? 0 : 1; });
    if (child.join() != os::ProcessEnd{}) return 1;
    one.heap()->sweep();
    if (!one.heap()->check().empty()) return 2;
    blocks.clear();
    return one.heap()->stats().blocks == 1 ? 0 : 3;
  });
}

TEST(HeapLimits, AForkWithoutADescriptorLeft) {
  in_child([] {
    const Block block = Block::allocate(100);
    set_limit(RLIMIT_NOFILE, 64);
    std::vector<os::Fd> all;
    for (int fd = 0; fd >= 0;) {
      fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (fd >= 0) all.emplace_back(fd);
    }
    const pid_t pid = ::fork();
    if (pid == 0) {
      block.data()[0] = std::byte{3};
      ::_exit(block.heap()->stats().held_here == 1 ? 0 : 1);
    }
    all.clear();
    int status = 0;
    if (::waitpid(pid, &status, 0) != pid || status != 0) return 1;
    block.heap()->sweep();
    return block.data()[0] == std::byte{3} && block.heap()->check().empty() ? 0 : 2;
  });
}

TEST(HeapLimits, ASmallDevShmDoesNotMatter) {
  in_child([] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kSkip;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0) {
      return kSkip;
    }
    const Block block = Block::allocate(16 * kMiB);
    std::fill_n(block.data(), block.size(), std::byte{1});
    return std::filesystem::is_empty("/dev/shm") ? 0 : 1;
  });
}

/// Writes a line into a control group's file.
bool write_line(const std::filesystem::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text << std::flush;
  return static_cast<bool>(stream);
}

TEST(HeapLimits, TheControlGroupsLimitIsAnErrorAndNoKill) {
  const auto groups = os::cgroup_directories("memory");
  if (groups.empty()) GTEST_SKIP() << "no control groups";
  const auto group = groups.front() / ("shoal-test-" + std::to_string(::getpid()));
  std::error_code refused;
  if (!std::filesystem::create_directory(group, refused)) GTEST_SKIP() << refused.message();
  const auto limit =
      std::filesystem::exists(group / "memory.max") ? "memory.max" : "memory.limit_in_bytes";
  in_child([&] {
    if (!write_line(group / limit, std::to_string(64 * kMiB)) ||
        !write_line(group / "cgroup.procs", std::to_string(::getpid()))) {
      return kSkip;
    }
    return use_heap(128 * kMiB, group.filename().string());
  });
  std::filesystem::remove(group, refused);
}

}  // namespace
}  // namespace shoal::ipc
