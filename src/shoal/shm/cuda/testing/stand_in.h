// The stand-in driver, for tests: loaded in the place of the real one, and what can be asked of it.
#pragma once

#include <dlfcn.h>

#include "shoal/shm/cuda/driver.h"

namespace shoal::shm::cuda::testing {

/// Threads: one. Load it before anything asks for a driver.
class StandIn {
 public:
  StandIn() : library_(::dlopen(SHOAL_STAND_IN_DRIVER, RTLD_NOW | RTLD_GLOBAL)) {
    if (library_ == nullptr) throw Error(::dlerror());
  }

  long count(const char* name) const { return call<long(const char*)>("stand_in_count")(name); }
  void fail(const char* function, abi::Result result, int nth = 1) const {
    call<void(const char*, int, int)>("stand_in_fail")(function, result, nth);
  }
  void hold(abi::Stream stream = nullptr) const {
    call<void(abi::Stream)>("stand_in_hold")(stream);
  }
  void go(abi::Stream stream = nullptr) const { call<void(abi::Stream)>("stand_in_go")(stream); }

  /// Whether all streams record graphs.
  void capture(bool on) const { call<void(int)>("stand_in_capture")(on ? 1 : 0); }

  abi::Address allocate(std::size_t bytes) const {
    abi::Address address = 0;
    check(call<abi::Result(abi::Address*, std::size_t)>("cuMemAlloc_v2")(&address, bytes));
    return address;
  }
  void free(abi::Address address) const {
    check(call<abi::Result(abi::Address)>("cuMemFree_v2")(address));
  }
  abi::Stream stream() const {
    abi::Stream stream = nullptr;
    check(call<abi::Result(abi::Stream*, unsigned)>("cuStreamCreate")(&stream, 0));
    return stream;
  }

 private:
  template <class Function>
  Function* call(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  static void check(abi::Result result) {
    if (result != abi::kSuccess) throw DriverError("the stand-in refused", result);
  }

  void* library_;
};

}  // namespace shoal::shm::cuda::testing
