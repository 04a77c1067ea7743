// Tells Shoal's own threads from those that make fork unsafe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace shoal::process {

/// Declares the calling thread to be one of Shoal's for as long as the object lives (on that
/// thread's stack): it does not stand in the way of fork.
///
/// The promise that goes with it: while other threads may fork, this thread holds no lock that a
/// forked child would take: it runs C++ alone, and a child never touches what it works on.
///
/// Threads: any.
/// Fork: a child may read and write the list; entries of threads that do not exist there are
/// harmless.
class OwnThread {
 public:
  OwnThread() noexcept;
  ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

 private:
  int slot_;
};

/// Kernel ids of the threads that are declared now.
std::vector<pid_t> own_threads();

/// The other threads that are alive now, "id (name)" each: neither the caller nor declared.
/// OpenBLAS's idle threads do not count: it stops them itself before every fork, and this call does
/// so too.
std::vector<std::string> foreign_threads();

}  // namespace shoal::process
