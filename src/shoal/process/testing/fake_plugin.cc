// A plug-in whose loading starts a thread: what a zygote cannot have.
#include <unistd.h>

#include <thread>

namespace {
struct StartsThread {
  StartsThread() {
    std::thread([] {
      for (;;) ::pause();
    }).detach();
  }
} const starts_thread;
}  // namespace
