#include "models/torch.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "numpy_api.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

/// Sizes that a tensor has room for by itself; its strides lie behind them.
constexpr std::int64_t kInlineDimensions = 5;

void* open(const std::string& path) {
  // Never closed: threads of torch run until the end of the process.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw std::runtime_error(fmt::format("cannot open {}", ::dlerror()));
  return library;
}

template <class Function>
void find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

template <class Function>
void need(void* library, Function& function, const char* name) {
  find(library, function, name);
  if (function == nullptr) {
    throw std::runtime_error(fmt::format("this torch has no {}: 2.6 and younger ones have", name));
  }
}

bool is_contiguous(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  std::int64_t expected = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

std::vector<std::int64_t> contiguous_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t next = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

}  // namespace

std::string without_stack(std::string text) {
  if (const auto stack = text.find("\nException raised from "); stack != std::string::npos) {
    text.resize(stack);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Torch::Torch(const std::string& folder, bool cuda) {
  void* library = open(folder + "/libtorch_cpu.so");
#define SHOAL_TORCH_NEED(function) need(library, call_.function, #function)
  SHOAL_TORCH_NEED(aoti_torch_device_type_cpu);
  SHOAL_TORCH_NEED(aoti_torch_device_type_cuda);
  SHOAL_TORCH_NEED(aoti_torch_create_tensor_from_blob);
  SHOAL_TORCH_NEED(aoti_torch_empty_strided);
  SHOAL_TORCH_NEED(aoti_torch_copy_);
  SHOAL_TORCH_NEED(aoti_torch_delete_tensor_object);
  SHOAL_TORCH_NEED(aoti_torch_get_data_ptr);
  SHOAL_TORCH_NEED(aoti_torch_get_dim);
  SHOAL_TORCH_NEED(aoti_torch_get_sizes);
  SHOAL_TORCH_NEED(aoti_torch_get_strides);
  SHOAL_TORCH_NEED(aoti_torch_get_storage_size);
  SHOAL_TORCH_NEED(aoti_torch_get_dtype);
  SHOAL_TORCH_NEED(aoti_torch_get_device_type);
  SHOAL_TORCH_NEED(aoti_torch_get_device_index);
#undef SHOAL_TORCH_NEED
  find(library, call_.torch_exception_get_what_without_backtrace,
       "torch_exception_get_what_without_backtrace");
  cpu_ = call_.aoti_torch_device_type_cpu();
  cuda_ = call_.aoti_torch_device_type_cuda();
  find_dtypes(library);
  if (cuda) {
    const std::string hip = folder + "/libtorch_hip.so";  // AMD's devices are called CUDA's, too
    open(std::filesystem::exists(hip) ? hip : folder + "/libtorch_cuda.so");
  }
}

void Torch::find_dtypes(void* library) {
  const auto number = [&](const char* name) {
    std::int32_t (*get)() = nullptr;
    need(library, get, name);
    return get();
  };
  const auto add = [&](const char* name, int type_num, char kind, int size) {
    dtypes_.push_back({number(name), type_num, kind, size});
  };
  add("aoti_torch_dtype_float32", NPY_FLOAT32, 'f', 4);
  add("aoti_torch_dtype_uint8", NPY_UINT8, 'u', 1);
  add("aoti_torch_dtype_int64", NPY_INT64, 'i', 8);
  add("aoti_torch_dtype_bool", NPY_BOOL, 'b', 1);
  add("aoti_torch_dtype_int32", NPY_INT32, 'i', 4);
  add("aoti_torch_dtype_float64", NPY_FLOAT64, 'f', 8);
  add("aoti_torch_dtype_float16", NPY_FLOAT16, 'f', 2);
  add("aoti_torch_dtype_int8", NPY_INT8, 'i', 1);
  add("aoti_torch_dtype_int16", NPY_INT16, 'i', 2);
  add("aoti_torch_dtype_uint16", NPY_UINT16, 'u', 2);
  add("aoti_torch_dtype_uint32", NPY_UINT32, 'u', 4);
  add("aoti_torch_dtype_uint64", NPY_UINT64, 'u', 8);
  add("aoti_torch_dtype_complex64", NPY_COMPLEX64, 'c', 8);
  add("aoti_torch_dtype_complex128", NPY_COMPLEX128, 'c', 16);
  float32_ = number("aoti_torch_dtype_float32");
  complex64_ = number("aoti_torch_dtype_complex64");
  complex32_ = number("aoti_torch_dtype_complex32");
}

void Torch::check(abi::Status status, const char* what) const {
  if (status == 0) return;
  const auto last = call_.torch_exception_get_what_without_backtrace;
  const char* const why = last == nullptr ? nullptr : last();
  if (why != nullptr && *why != 0) throw std::runtime_error(without_stack(why));
  throw std::runtime_error(fmt::format("torch cannot {}; why, it has written to stderr", what));
}

Array Torch::array_from(nb::handle object) const {
  constexpr int kAsTorchReads = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED;
  Array array;
  array.object = nb::steal(PyArray_FROM_OF(object.ptr(), kAsTorchReads));
  if (!array.object.is_valid()) throw nb::python_error();
  auto* const numpy = reinterpret_cast<PyArrayObject*>(array.object.ptr());
  const char kind = PyArray_DESCR(numpy)->kind;
  const auto size = static_cast<int>(PyArray_ITEMSIZE(numpy));
  const auto found = std::ranges::find_if(
      dtypes_, [&](const Dtype& each) { return each.kind == kind && each.size == size; });
  if (found == dtypes_.end()) {
    const nb::str name(nb::object(array.object.attr("dtype")));
    throw std::runtime_error(fmt::format("torch takes no array of dtype {}", name.c_str()));
  }
  static_assert(sizeof(npy_intp) == sizeof(std::int64_t));
  array.data = static_cast<std::byte*>(PyArray_DATA(numpy));
  array.sizes = {reinterpret_cast<const std::int64_t*>(PyArray_DIMS(numpy)),
                 static_cast<std::size_t>(PyArray_NDIM(numpy))};
  array.num_bytes = static_cast<std::size_t>(PyArray_NBYTES(numpy));
  array.dtype = found->number;
  return array;
}

Tensor Torch::over(const Array& array) const {
  const std::vector<std::int64_t> strides = contiguous_strides(array.sizes);
  abi::Tensor made = nullptr;
  check(call_.aoti_torch_create_tensor_from_blob(
            array.data, static_cast<std::int64_t>(array.sizes.size()), array.sizes.data(),
            strides.data(), 0, array.dtype, cpu_, 0, &made),
        "make a tensor over an array");
  return own(made);
}

Torch::Layout Torch::layout_of(abi::Tensor tensor) const {
  Layout layout;
  std::int64_t ndim = 0;
  std::int64_t *sizes = nullptr, *strides = nullptr;
  check(call_.aoti_torch_get_dim(tensor, &ndim), "tell a tensor's number of dimensions");
  check(call_.aoti_torch_get_sizes(tensor, &sizes), "tell a tensor's sizes");
  check(call_.aoti_torch_get_strides(tensor, &strides), "tell a tensor's strides");
  check(call_.aoti_torch_get_dtype(tensor, &layout.dtype), "tell a tensor's dtype");
  check(call_.aoti_torch_get_device_type(tensor, &layout.device.type), "tell a tensor's device");
  check(call_.aoti_torch_get_device_index(tensor, &layout.device.index), "tell a tensor's device");
  layout.sizes = {sizes, static_cast<std::size_t>(ndim)};
  layout.strides = {strides, static_cast<std::size_t>(ndim)};
  return layout;
}

Tensor Torch::empty(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                    std::int32_t dtype, DeviceOf device) const {
  abi::Tensor made = nullptr;
  check(call_.aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(),
                                       strides.data(), dtype, device.type, device.index, &made),
        "make a tensor");
  return own(made);
}

Tensor Torch::to(const Tensor& tensor, DeviceOf device) const {
  const Layout own = layout_of(tensor.get());
  Tensor made = empty(own.sizes, own.strides, own.dtype, device);
  check(call_.aoti_torch_copy_(made.get(), tensor.get(), 0), "copy a tensor to a device");
  return made;
}

Tensor Torch::copied_as(abi::Tensor like, const Tensor& from) const {
  const Layout own = layout_of(like);
  Tensor made = empty(own.sizes, own.strides, own.dtype, own.device);
  check(call_.aoti_torch_copy_(made.get(), from.get(), 0), "copy a tensor");
  return made;
}

const Torch::Dtype* Torch::numpy_dtype(std::int32_t number) const noexcept {
  const auto found = std::ranges::find(dtypes_, number, &Dtype::number);
  return found == dtypes_.end() ? nullptr : &*found;
}

Bytes Torch::bytes_of(abi::Tensor tensor) const {
  void* data = nullptr;
  std::int64_t size = 0;
  check(call_.aoti_torch_get_data_ptr(tensor, &data), "tell where a tensor lies");
  check(call_.aoti_torch_get_storage_size(tensor, &size), "tell the size of a tensor");
  return {static_cast<const std::byte*>(data), static_cast<std::size_t>(size)};
}

Tensor Torch::contiguous_copy(abi::Tensor tensor, const Layout& layout) const {
  std::int32_t dtype = layout.dtype;
  if (numpy_dtype(dtype) == nullptr) dtype = dtype == complex32_ ? complex64_ : float32_;
  Tensor made = empty(layout.sizes, contiguous_strides(layout.sizes), dtype, {cpu_, 0});
  check(call_.aoti_torch_copy_(made.get(), tensor, 0), "copy a tensor");
  return made;
}

Tensor Torch::for_numpy(Tensor tensor, std::span<const Bytes> taken) const {
  const Layout layout = layout_of(tensor.get());
  const bool as_it_is = layout.device.type == cpu_ && numpy_dtype(layout.dtype) != nullptr &&
                        is_contiguous(layout.sizes, layout.strides);
  if (as_it_is) {
    const Bytes own = bytes_of(tensor.get());
    if (std::ranges::none_of(taken, [&](const Bytes& other) { return own.overlaps(other); })) {
      return tensor;
    }
  }
  return contiguous_copy(tensor.get(), layout);
}

Tensor Torch::for_numpy(abi::Tensor borrowed) const {
  return contiguous_copy(borrowed, layout_of(borrowed));
}

nb::object Torch::array_of(Tensor tensor) const {
  const Layout layout = layout_of(tensor.get());
  auto* const data = const_cast<std::byte*>(bytes_of(tensor.get()).first);
  auto kept = std::make_unique<Tensor>(std::move(tensor));
  nb::capsule owner(kept.get(), [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  kept.release();
  std::vector<npy_intp> shape(layout.sizes.begin(), layout.sizes.end());
  nb::object array = nb::steal(PyArray_New(&PyArray_Type, static_cast<int>(shape.size()),
                                           shape.data(), numpy_dtype(layout.dtype)->type_num,
                                           nullptr, data, 0, NPY_ARRAY_CARRAY, nullptr));
  if (!array.is_valid() || PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()),
                                                 owner.release().ptr()) != 0) {
    throw nb::python_error();
  }
  return array;
}

void Torch::fill_missing_dimensions(const Tensor& tensor) const {
  std::int64_t ndim = 0;
  std::int64_t* sizes = nullptr;
  check(call_.aoti_torch_get_dim(tensor.get(), &ndim), "tell a tensor's number of dimensions");
  check(call_.aoti_torch_get_sizes(tensor.get(), &sizes), "tell a tensor's sizes");
  if (ndim < kInlineDimensions) std::fill(sizes + ndim, sizes + kInlineDimensions, 1);
}

bool Torch::fills_missing_dimensions() const {
  const std::int64_t one = 1;
  const Tensor tensor = empty({&one, 1}, {&one, 1}, float32_, {cpu_, 0});
  std::int64_t *sizes = nullptr, *strides = nullptr;
  check(call_.aoti_torch_get_sizes(tensor.get(), &sizes), "tell a tensor's sizes");
  check(call_.aoti_torch_get_strides(tensor.get(), &strides), "tell a tensor's strides");
  return reinterpret_cast<std::uintptr_t>(strides) - reinterpret_cast<std::uintptr_t>(sizes) ==
         kInlineDimensions * sizeof(std::int64_t);
}

}  // namespace shoal::python
