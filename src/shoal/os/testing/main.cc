// main() of every test program: GoogleTest, and a check after each case that it left no descriptor
// and no child behind. Under ThreadSanitizer a case that has run child processes says so: `shoal
// test` counts them.
#include <dirent.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
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

/// A process keeps one of these from its first port lease, its first worker, its first shared block,
/// or the first that can be traced until its end.
bool is_kept(const std::string& target) {
  return target.rfind("/memfd:shoal leases", 0) == 0 || target.rfind("/memfd:shoal heap", 0) == 0 ||
         target.rfind("/memfd:shoal trace", 0) == 0;
}

/// Running or not yet collected.
bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

#ifdef __SANITIZE_THREAD__
constexpr bool kChecksThreads = true;
#else
constexpr bool kChecksThreads = false;
#endif

/// Grows with every child that is collected: each has touched pages.
long faults_of_children() {
  rusage use{};
  if (::getrusage(RUSAGE_CHILDREN, &use) != 0) std::abort();
  return use.ru_minflt;
}

class LeakCheck : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    descriptors_ = open_descriptors();
    children_ = has_children();
    faults_ = faults_of_children();
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
    if (kChecksThreads && faults_of_children() != faults_) std::puts("[ CHILDREN ]");
  }

  std::map<int, std::string> descriptors_;
  bool children_ = false;
  long faults_ = 0;
};

#ifdef __SANITIZE_THREAD__
/// ThreadSanitizer (GCC 12) tells threads by the addresses of their stacks and does not forget, in
/// a forked child, those of the parent; glibc hands their stacks to the child's first threads, and
/// the program stops at a "dup thread". Stacks larger than any of the parent's are always new ones.
void ask_for_larger_stacks() {
  constexpr std::size_t kMore = 1 << 16;
  pthread_attr_t kind;
  std::size_t bytes = 0;
  if (::pthread_getattr_default_np(&kind) != 0) std::abort();
  if (::pthread_attr_getstacksize(&kind, &bytes) != 0) std::abort();
  if (::pthread_attr_setstacksize(&kind, bytes + kMore) != 0) std::abort();
  if (::pthread_setattr_default_np(&kind) != 0) std::abort();
  ::pthread_attr_destroy(&kind);
}

void let_forked_children_start_threads() {
  if (::pthread_atfork(nullptr, nullptr, &ask_for_larger_stacks) != 0) std::abort();
}
#else
void let_forked_children_start_threads() {}
#endif

}  // namespace

int main(int argc, char** argv) {
  let_forked_children_start_threads();
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new LeakCheck);
  return RUN_ALL_TESTS();
}
