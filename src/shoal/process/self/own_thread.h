// Which threads are Shoal's own, and do not make fork unsafe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace shoal::process {

/// Declares the calling thread to be one of Shoal's own while the object lives, on that thread's
/// stack: fork is not refused because of it. A resource.
///
/// The thread promises to hold no lock that a forked child would take. It runs C++ alone, and a
/// child never touches what it works on.
///
/// Threads: any.
/// Processes, death: this one's list, which ends with it.
/// Fork: a child may read and write the list; entries of threads that do not exist there are
/// harmless.
class OwnThread {
 public:
  OwnThread() noexcept;
  /// The same for a thread that was made for Shoal's work: it is called `name` (15 letters at most),
  /// and signals go to others.
  explicit OwnThread(const char* name) noexcept;
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
/// so too, by a fork whose child ends at once where OpenBLAS lets nobody else do it.
std::vector<std::string> foreign_threads();

}  // namespace shoal::process
