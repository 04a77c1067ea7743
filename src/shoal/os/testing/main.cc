// main() of every test program: GoogleTest, and a check after each case that it left no descriptor
// and no child behind.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

namespace {

/// Open descriptors and what they refer to.
std::map<int, std::string> open_descriptors() {
  std::map<int, std::string> found;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd == ::dirfd(folder)) continue;
    std::array<char, 256> target{};
    const ssize_t length =
        ::readlinkat(::dirfd(folder), entry->d_name, target.data(), target.size() - 1);
    found[fd] = length > 0 ? std::string(target.data()) : "?";
  }
  ::closedir(folder);
  return found;
}

/// A process keeps one of these from its first port lease, its first worker, or its first shared
/// block until its end.
bool is_kept(const std::string& target) {
  return target.rfind("/memfd:shoal leases", 0) == 0 || target.rfind("/memfd:shoal heap", 0) == 0;
}

/// Running or not yet collected.
bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

class LeakCheck : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    descriptors_ = open_descriptors();
    children_ = has_children();
  }

  void OnTestEnd(const testing::TestInfo&) override {
    std::set<std::string> kept;
    for (const auto& [fd, target] : open_descriptors()) {
      if (is_kept(target) && kept.insert(target).second) continue;
      if (descriptors_.count(fd) == 0) {
        ADD_FAILURE() << "the test left descriptor " << fd << " open (" << target << ")";
      }
    }
    if (!children_ && has_children()) {
      ADD_FAILURE() << "the test left a child process that nobody collected";
    }
  }

  std::map<int, std::string> descriptors_;
  bool children_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new LeakCheck);
  return RUN_ALL_TESTS();
}
