#include "models/models_arrays.h"

#include <ATen/DLConvertor.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>

namespace nb = nanobind;

namespace shoal::python {
namespace {

std::string without_stack(std::string text) {
  // LibTorch appends it where a failure has crossed an interface of C.
  if (const auto stack = text.find("\nException raised from "); stack != std::string::npos) {
    text.resize(stack);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool numpy_has(at::ScalarType type) {
  return at::isIntegralType(type, true) || type == at::kHalf || type == at::kFloat ||
         type == at::kDouble || type == at::kComplexFloat || type == at::kComplexDouble;
}

}  // namespace

void rethrow_plainly() {
  try {
    throw;
  } catch (const c10::Error& error) {
    throw std::runtime_error(without_stack(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw std::runtime_error(without_stack(error.what()));
  }
}

at::Tensor tensor_over(const Array& array) {
  const nb::dlpack::dtype type = array.dtype();
  std::vector<std::int64_t> sizes(array.ndim());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = static_cast<std::int64_t>(array.shape(i));
  }
  try {
    const at::ScalarType scalar = at::toScalarType({type.code, type.bits, type.lanes});
    return at::from_blob(const_cast<void*>(array.data()), sizes, at::TensorOptions(scalar));
  } catch (...) {
    rethrow_plainly();
  }
}

nb::object array_of(at::Tensor tensor, const std::vector<at::Tensor>& inputs) {
  {
    const nb::gil_scoped_release unlocked;
    const c10::InferenceMode guard;
    if (!numpy_has(tensor.scalar_type())) tensor = tensor.to(at::kFloat);
    tensor = tensor.detach().cpu().contiguous();
    if (std::ranges::any_of(inputs, [&](const auto& input) { return tensor.is_alias_of(input); })) {
      tensor = tensor.clone();
    }
  }
  const DLDataType type = at::getDLDataType(tensor);
  const std::vector<std::size_t> shape(tensor.sizes().begin(), tensor.sizes().end());
  auto kept = std::make_unique<at::Tensor>(std::move(tensor));
  void* data = kept->data_ptr();
  const nb::capsule owner(kept.get(),
                          [](void* held) noexcept { delete static_cast<at::Tensor*>(held); });
  kept.release();
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr,
                                         nb::dlpack::dtype{type.code, type.bits, type.lanes}));
}

nb::dict arrays_of(const State& state) {
  nb::dict arrays;
  for (const auto& [name, tensor] : state) arrays[nb::str(name.c_str())] = array_of(tensor);
  return arrays;
}

State state_over(const nb::dict& arrays) {
  State state;
  for (const auto& [name, array] : arrays) {
    state[nb::cast<std::string>(name)] = tensor_over(nb::cast<Array>(array));
  }
  return state;
}

}  // namespace shoal::python
