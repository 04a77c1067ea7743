#include "tensors/device_stream.h"

#include <dlfcn.h>
#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>

#include "tensors/calls.h"
#include "tensors/torch_api.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

using shm::cuda::abi::Stream;

/// Of torch's C interface, in 2.6 and newer: the stream of the thread that calls. Returns 0, or an
/// error.
using StreamOf = std::int32_t (*)(std::int32_t device, void** stream);

std::atomic<StreamOf> stream_of{nullptr};
std::atomic<bool> has_streams{false};  // torch was built with CUDA

/// nullptr where the library of torch's CUDA is not loaded, or has no such function.
StreamOf find_function() {
  void* const library = ::dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<StreamOf>(::dlsym(library, "aoti_torch_get_current_cuda_stream"));
}

Stream stream_by_python(int device) {
  if (!nb::is_alive()) return nullptr;
  const nb::gil_scoped_acquire gil;
  try {
    const nb::object cuda = nb::module_::import_("torch").attr("cuda");
    return reinterpret_cast<Stream>(
        to_address(cuda.attr("current_stream")(device).attr("cuda_stream")));
  } catch (const nb::python_error&) {
    return nullptr;  // at the end of the process torch has no streams any more
  }
}

}  // namespace

void find_streams() {
  has_streams = TorchApi::here().has_cuda();
  stream_of = has_streams ? find_function() : nullptr;
}

Stream current_stream(int device) noexcept {
  if (const StreamOf function = stream_of) {
    void* stream = nullptr;
    return function(device, &stream) == 0 ? static_cast<Stream>(stream) : nullptr;
  }
  return has_streams ? stream_by_python(device) : nullptr;
}

}  // namespace shoal::python
