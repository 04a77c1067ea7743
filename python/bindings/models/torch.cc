#include "models/torch.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

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

Array array_from(nb::handle object) {
  Array array;
  if (nb::try_cast(object, array)) return array;
  throw std::runtime_error(fmt::format("torch takes no array of dtype {}",
                                       nb::str(nb::getattr(object, "dtype", nb::none())).c_str()));
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
  using Code = nb::dlpack::dtype_code;
  const auto add = [&](const char* name, Code code, std::uint8_t bits) {
    dtypes_.push_back({number(name), {static_cast<std::uint8_t>(code), bits, 1}});
  };
  add("aoti_torch_dtype_float32", Code::Float, 32);
  add("aoti_torch_dtype_uint8", Code::UInt, 8);
  add("aoti_torch_dtype_int64", Code::Int, 64);
  add("aoti_torch_dtype_bool", Code::Bool, 8);
  add("aoti_torch_dtype_int32", Code::Int, 32);
  add("aoti_torch_dtype_float64", Code::Float, 64);
  add("aoti_torch_dtype_float16", Code::Float, 16);
  add("aoti_torch_dtype_int8", Code::Int, 8);
  add("aoti_torch_dtype_int16", Code::Int, 16);
  add("aoti_torch_dtype_uint16", Code::UInt, 16);
  add("aoti_torch_dtype_uint32", Code::UInt, 32);
  add("aoti_torch_dtype_uint64", Code::UInt, 64);
  add("aoti_torch_dtype_complex64", Code::Complex, 64);
  add("aoti_torch_dtype_complex128", Code::Complex, 128);
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

Tensor Torch::over(const Array& array) const {
  const nb::dlpack::dtype numpy = array.dtype();
  const auto found =
      std::ranges::find_if(dtypes_, [&](const Dtype& each) { return each.numpy == numpy; });
  if (found == dtypes_.end()) {
    throw std::runtime_error(fmt::format(
        "torch has no dtype for elements of {} bits of DLPack's kind {}", numpy.bits, numpy.code));
  }
  std::vector<std::int64_t> sizes(array.ndim());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = static_cast<std::int64_t>(array.shape(i));
  }
  const std::vector<std::int64_t> strides = contiguous_strides(sizes);
  abi::Tensor made = nullptr;
  check(call_.aoti_torch_create_tensor_from_blob(
            const_cast<void*>(array.data()), static_cast<std::int64_t>(sizes.size()), sizes.data(),
            strides.data(), 0, found->number, cpu_, 0, &made),
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
  const std::vector<std::size_t> shape(layout.sizes.begin(), layout.sizes.end());
  const nb::dlpack::dtype dtype = numpy_dtype(layout.dtype)->numpy;
  void* const data = const_cast<std::byte*>(bytes_of(tensor.get()).first);
  auto kept = std::make_unique<Tensor>(std::move(tensor));
  const nb::capsule owner(kept.get(),
                          [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  kept.release();
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, dtype));
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
