// NumPy arrays as LibTorch's tensors, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <map>
#include <string>
#include <vector>

namespace shoal::python {

/// Of any dtype that LibTorch has, C-contiguous.
using Array = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
using State = std::map<std::string, at::Tensor>;

/// The array's memory, which the caller keeps. Throws RuntimeError for a dtype that LibTorch lacks.
at::Tensor tensor_over(const Array& array);

/// Owns its memory unless `tensor` shares that of the model's weights; what shares that of `inputs`
/// is copied, what lies on a device as well, and what NumPy has no dtype for is float32.
nanobind::object array_of(at::Tensor tensor, const std::vector<at::Tensor>& inputs = {});

nanobind::dict arrays_of(const State& state);
/// Tensors over the arrays.
State state_over(const nanobind::dict& arrays);

/// For catch (...): what LibTorch threw, as std::runtime_error without its C++ stack.
[[noreturn]] void rethrow_plainly();

/// Calls `run` without the GIL, in LibTorch's inference mode; throws as rethrow_plainly().
template <class Run>
auto without_gil(Run run) {
  const nanobind::gil_scoped_release unlocked;
  const c10::InferenceMode guard;
  try {
    return run();
  } catch (...) {
    rethrow_plainly();
  }
}

}  // namespace shoal::python
