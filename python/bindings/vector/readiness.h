// A descriptor that tells when a vector environment's result is there.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <utility>

#include "shoal/process/self/pollable_wait.h"
#include "shoal/vector/vector_env.h"

namespace shoal::python {

/// Of one VectorEnv, which it must not outlive. Nothing is made before somebody asks.
///
/// Threads: one at a time.
class Readiness {
 public:
  /// -1: wait() or recv() would not wait now, or would do the work itself. Else a descriptor that is
  /// readable when it is worth a look whether that is so.
  int watch(vector::VectorEnv& envs) {
    std::function<bool(os::Deadline)> wait = envs.awaited();
    if (!wait || wait(os::Deadline())) return -1;
    pollable().arm(std::move(wait));
    return pollable().fd();
  }
  /// The same descriptor, readable at once where watch() is -1.
  int fileno(vector::VectorEnv& envs) {
    if (watch(envs) < 0) pollable().notify();
    return pollable().fd();
  }
  /// Whoever watches is to look: the environments are closed.
  void notify() noexcept {
    if (pollable_) pollable_->notify();
  }

 private:
  process::PollableWait& pollable() {
    if (!pollable_) pollable_ = std::make_unique<process::PollableWait>();
    return *pollable_;
  }

  std::unique_ptr<process::PollableWait> pollable_;
};

/// watch(), fileno() and wake() of a class that has readiness() and envs().
template <class Io>
void bind_readiness(nanobind::class_<Io>& io) {
  io.def("watch", [](Io& self) { return self.readiness().watch(self.envs()); })
      .def("fileno", [](Io& self) { return self.readiness().fileno(self.envs()); })
      .def("wake", [](Io& self) { self.readiness().notify(); });
}

}  // namespace shoal::python
