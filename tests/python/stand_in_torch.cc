// A libtorch_cpu.so and the library of a package, as test_serve_package.py compiles them: just
// enough of torch's C interface to show what is asked of it. -DPACKAGE is the package; of it,
// -DCOMPILED_BY_A_NEWER_TORCH, -DWEIGHTS_OF_CPP (as of torch 2.8) and -DWITHOUT_WEIGHTS (as of 2.6)
// are variants.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

constexpr std::int32_t kCpu = 0, kCuda = 1;
constexpr std::int32_t kFloat32 = 6, kBfloat16 = 15;

/// As torch has it: five sizes in the tensor itself, the strides behind them.
struct Tensor {
  std::int64_t ndim = 0;
  std::int64_t sizes[5], strides[5];
  char* data = nullptr;
  std::int64_t bytes = 0;
  std::int32_t dtype = kFloat32, device = kCpu, index = 0;
  bool owns = false;
};

inline std::int64_t element_bytes(std::int32_t dtype) {
  constexpr std::int64_t kBytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1};
  return dtype == kBfloat16 ? 2 : kBytes[dtype];
}

#ifndef PACKAGE

static int live = 0;

EXPORT int live_tensors() { return live; }

#define NUMBER(name, value) \
  EXPORT std::int32_t aoti_torch_##name() { return value; }
NUMBER(device_type_cpu, kCpu)
NUMBER(device_type_cuda, kCuda)
NUMBER(dtype_uint8, 0)
NUMBER(dtype_int8, 1)
NUMBER(dtype_int16, 2)
NUMBER(dtype_int32, 3)
NUMBER(dtype_int64, 4)
NUMBER(dtype_float16, 5)
NUMBER(dtype_float32, kFloat32)
NUMBER(dtype_float64, 7)
NUMBER(dtype_complex32, 8)
NUMBER(dtype_complex64, 9)
NUMBER(dtype_complex128, 10)
NUMBER(dtype_bool, 11)
NUMBER(dtype_bfloat16, kBfloat16)
NUMBER(dtype_uint16, 27)
NUMBER(dtype_uint32, 28)
NUMBER(dtype_uint64, 29)

static Tensor* made(std::int64_t ndim, const std::int64_t* sizes, const std::int64_t* strides,
                    std::int32_t dtype, std::int32_t device, std::int32_t index) {
  auto* tensor = new Tensor;
  std::memset(tensor->sizes, 0x55, sizeof tensor->sizes);  // what stood there before
  tensor->ndim = ndim;
  std::int64_t last = 0;
  for (int i = 0; i < ndim; ++i) {
    tensor->sizes[i] = sizes[i];
    tensor->strides[i] = strides[i];
    last += (sizes[i] - 1) * strides[i];
  }
  tensor->bytes = (last + 1) * element_bytes(dtype);
  tensor->dtype = dtype;
  tensor->device = device;
  tensor->index = index;
  ++live;
  return tensor;
}

EXPORT int aoti_torch_create_tensor_from_blob(void* data, std::int64_t ndim,
                                              const std::int64_t* sizes,
                                              const std::int64_t* strides, std::int64_t offset,
                                              std::int32_t dtype, std::int32_t device,
                                              std::int32_t index, Tensor** out) {
  *out = made(ndim, sizes, strides, dtype, device, index);
  (*out)->data = static_cast<char*>(data) + offset * element_bytes(dtype);
  return 0;
}

EXPORT int aoti_torch_empty_strided(std::int64_t ndim, const std::int64_t* sizes,
                                    const std::int64_t* strides, std::int32_t dtype,
                                    std::int32_t device, std::int32_t index, Tensor** out) {
  *out = made(ndim, sizes, strides, dtype, device, index);
  (*out)->data = static_cast<char*>(std::calloc(1, static_cast<std::size_t>((*out)->bytes)));
  (*out)->owns = true;
  return 0;
}

static float element(const Tensor& tensor, std::int64_t at) {
  if (tensor.dtype != kBfloat16) return reinterpret_cast<float*>(tensor.data)[at];
  const std::uint32_t bits = reinterpret_cast<std::uint16_t*>(tensor.data)[at] << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Of up to two dimensions of float32 and bfloat16.
EXPORT int aoti_torch_copy_(Tensor* to, Tensor* from, std::int32_t) {
  const auto size = [](const Tensor& tensor, int i) {
    return i < tensor.ndim ? tensor.sizes[i] : 1;
  };
  const auto at = [](const Tensor& tensor, std::int64_t i, std::int64_t j) {
    return (tensor.ndim > 0 ? i * tensor.strides[0] : 0) +
           (tensor.ndim > 1 ? j * tensor.strides[1] : 0);
  };
  for (std::int64_t i = 0; i < size(*to, 0); ++i) {
    for (std::int64_t j = 0; j < size(*to, 1); ++j) {
      reinterpret_cast<float*>(to->data)[at(*to, i, j)] = element(*from, at(*from, i, j));
    }
  }
  return 0;
}

EXPORT int aoti_torch_delete_tensor_object(Tensor* tensor) {
  if (tensor->owns) std::free(tensor->data);
  delete tensor;
  --live;
  return 0;
}

#define GET(name, Type, value)                                  \
  EXPORT int aoti_torch_get_##name(Tensor* tensor, Type* out) { \
    *out = value;                                               \
    return 0;                                                   \
  }
GET(data_ptr, void*, tensor->data)
GET(dim, std::int64_t, tensor->ndim)
GET(sizes, std::int64_t*, tensor->sizes)
GET(strides, std::int64_t*, tensor->strides)
GET(storage_size, std::int64_t, tensor->bytes)
GET(dtype, std::int32_t, tensor->dtype)
GET(device_type, std::int32_t, tensor->device)
GET(device_index, std::int32_t, tensor->index)

#else

extern "C" int aoti_torch_empty_strided(std::int64_t, const std::int64_t*, const std::int64_t*,
                                        std::int32_t, std::int32_t, std::int32_t, Tensor**);
extern "C" int aoti_torch_create_tensor_from_blob(void*, std::int64_t, const std::int64_t*,
                                                  const std::int64_t*, std::int64_t, std::int32_t,
                                                  std::int32_t, std::int32_t, Tensor**);
extern "C" int aoti_torch_delete_tensor_object(Tensor*);
#ifdef COMPILED_BY_A_NEWER_TORCH
extern "C" int aoti_torch_from_the_future();
EXPORT int use() { return aoti_torch_from_the_future(); }
#endif

struct Weight {
  const char* name;
  Tensor* tensor;
};

/// One weight, float32[2], in two buffers of which one is in use.
struct Container {
  std::int32_t device = kCpu, index = 0;
  float buffers[2][2] = {{2, 3}, {0, 0}};
  int used = 0;
  Tensor* weight = nullptr;
};

static thread_local std::string error;
static std::vector<Weight> entries;

static int failed(const char* why) {
  error = why;
  return 1;
}

static void renew(Container& self) {
  if (self.weight != nullptr) aoti_torch_delete_tensor_object(self.weight);
  const std::int64_t size = 2, stride = 1;
  aoti_torch_create_tensor_from_blob(self.buffers[self.used], 1, &size, &stride, 0, kFloat32,
                                     self.device, self.index, &self.weight);
}

EXPORT int AOTInductorModelContainerCreateWithDevice(Container** out, std::size_t,
                                                     const char* device, const char*) {
  *out = new Container;
  if (std::strncmp(device, "cuda", 4) == 0) {
    (*out)->device = kCuda;
    (*out)->index = device[4] == ':' ? std::atoi(device + 5) : 0;
  }
  renew(**out);
  return 0;
}

EXPORT int AOTInductorModelContainerDelete(Container* self) {
  aoti_torch_delete_tensor_object(self->weight);
  delete self;
  return 0;
}

EXPORT int AOTInductorModelContainerGetCallSpec(Container*, const char** in, const char** out) {
#define LEAF R"({"type": null, "context": null, "children_spec": []})"
#define TUPLE(parts) \
  R"({"type": "builtins.tuple", "context": "null", "children_spec": [)" parts "]}"
  *in = "[1, " TUPLE(
      TUPLE(LEAF) R"(, {"type": "builtins.dict", "context": "[]", "children_spec": []})") "]";
  *out = "[1, " TUPLE(LEAF ", " LEAF ", " LEAF ", " LEAF ", " LEAF ", " LEAF) "]";
  return 0;
}

EXPORT int AOTInductorModelContainerGetNumInputs(Container*, std::size_t* count) {
  *count = 1;
  return 0;
}

EXPORT int AOTInductorModelContainerGetNumOutputs(Container*, std::size_t* count) {
  *count = 6;
  return 0;
}

static Tensor* empty(const Container& self, std::vector<std::int64_t> sizes,
                     std::vector<std::int64_t> strides, std::int32_t dtype) {
  Tensor* out = nullptr;
  aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(),
                           dtype, self.device, self.index, &out);
  return out;
}

/// For float32[n, 2]: that times the weight; the same once more; it again in bfloat16; transposed;
/// the input; n elements of the weight, which has two.
EXPORT int AOTInductorModelContainerRun(Container* self, Tensor** inputs, std::size_t,
                                        Tensor** outputs, std::size_t, void*, void*) {
  if (inputs[0]->sizes[1] != 2) {  // one row of one element would be as good as any
    error =
        "unmatched dim value at 1, expected: 2, but got: " + std::to_string(inputs[0]->sizes[1]) +
        "\nException raised from Run at package.cpp:1";
    return 1;
  }
  if (inputs[0]->device != self->device || inputs[0]->index != self->index) {
    return failed("the input is on another device");
  }
  Tensor* x = inputs[0];
  inputs[0] = nullptr;
  const float* values = reinterpret_cast<float*>(x->data);
  const std::int64_t rows = x->sizes[0];
  if (values[0] < 0) {
    aoti_torch_delete_tensor_object(x);
    return failed("a negative row");
  }
  Tensor* product = empty(*self, {rows, 2}, {2, 1}, kFloat32);
  Tensor* small = empty(*self, {rows, 2}, {2, 1}, kBfloat16);
  Tensor* turned = empty(*self, {rows, 2}, {1, rows}, kFloat32);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      const float value = values[2 * i + j] * self->buffers[self->used][j];
      reinterpret_cast<float*>(product->data)[2 * i + j] = value;
      reinterpret_cast<float*>(turned->data)[i + j * rows] = value;
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      reinterpret_cast<std::uint16_t*>(small->data)[2 * i + j] =
          static_cast<std::uint16_t>(bits >> 16);
    }
  }
  const std::int64_t size = rows < 2 ? rows : 2, stride = 1;
  Tensor* weight = nullptr;
  aoti_torch_create_tensor_from_blob(self->buffers[self->used], 1, &size, &stride, 0, kFloat32,
                                     self->device, self->index, &weight);
  Tensor* answers[] = {product, product, small, turned, x, weight};
  std::memcpy(outputs, answers, sizeof answers);
  return 0;
}

EXPORT int AOTInductorModelContainerGetNumConstants(Container*, std::size_t* count) {
  *count = 1;
  return 0;
}

EXPORT int AOTInductorModelContainerGetConstantName(Container*, std::size_t, const char** name) {
  *name = "scale_by";
  return 0;
}

EXPORT int AOTInductorModelContainerGetConstantOriginalFQN(Container*, std::size_t,
                                                           const char** name) {
  *name = "scale.by";
  return 0;
}

#ifdef WEIGHTS_OF_CPP
EXPORT int AOTInductorModelContainerExtractConstantsMap(Container*, void*, bool) { std::abort(); }
#elif !defined(WITHOUT_WEIGHTS)
EXPORT int AOTInductorModelContainerExtractConstantsMapEntries(Container* self, const Weight** out,
                                                               std::size_t* count, bool) {
  entries = {{"scale.by", self->weight}};
  *out = entries.data();
  *count = entries.size();
  return 0;
}

EXPORT int AOTInductorModelContainerUpdateConstantBufferPairs(Container* self, const Weight* pairs,
                                                              std::size_t count, bool, bool) {
  if (count != 1 || std::strcmp(pairs[0].name, "scale_by") != 0) return failed("other weights");
  if (pairs[0].tensor->device != self->device) return failed("weights on another device");
  std::memcpy(self->buffers[1 - self->used], pairs[0].tensor->data, sizeof self->buffers[0]);
  return 0;
}
#endif

EXPORT int AOTInductorModelContainerSwapConstantBuffer(Container* self) {
  self->used = 1 - self->used;
  renew(*self);
  return 0;
}

EXPORT int AOTInductorGetLastError(const char** why) {
  *why = error.c_str();
  return 0;
}

#endif
