#include "shoal/shm/cuda/testing/stand_in_state.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace shoal::shm::cuda::testing::stand_in {
namespace {

std::string name_of(long serial) {
  return "cuda stand-in " + std::to_string(::getpid()) + "-" + std::to_string(serial);
}

}  // namespace

State& state() {
  static State* const made = new State;
  return *made;
}
int new_memfd(std::size_t bytes, long serial) {
  const int fd = ::memfd_create(name_of(serial).c_str(), MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return -1;
  return fd;
}

void* map(int fd, std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

int reopen(const SharedHandle& handle) {
  const std::string link =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  char target[128] = {};
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0) return -1;
  const std::string wanted = "/memfd:cuda stand-in " + std::to_string(handle.pid) + "-" +
                             std::to_string(handle.serial) + " ";
  if (std::string(target).rfind(wanted, 0) != 0) return -1;
  return ::open(link.c_str(), O_RDWR | O_CLOEXEC);
}

StreamImpl& stream_of(Stream stream) { return stream == nullptr ? state().legacy : *stream; }

void advance() {
  const auto run = [](StreamImpl& stream) {
    bool moved = false;
    while (!stream.held && !stream.queue.empty()) {
      const Work work = stream.queue.front();
      if (work.waits && work.page->done.load() < work.target) break;
      if (!work.waits) work.page->done.store(work.target);
      stream.queue.pop_front();
      moved = true;
    }
    return moved;
  };
  for (bool moved = true; moved;) {
    moved = run(state().legacy);
    for (StreamImpl* stream : state().streams) moved = run(*stream) || moved;
  }
}

}  // namespace shoal::shm::cuda::testing::stand_in
