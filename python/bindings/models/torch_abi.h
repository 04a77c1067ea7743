// The C interfaces of torch and of what AOTInductor compiles, as their releases keep them. Declared
// here, so that nothing of torch is needed to build, and one build goes with every release.
//
// Torch's own text is in its headers `shim` (of aoti_torch/c and of stable/c) and `interface` (of
// aoti_runtime). Where no release is named, 2.6 has it already, and 2.14 still with this signature.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal::python::abi {

/// A tensor on torch's heap. Whoever is given one deletes it.
struct TensorOpaque;
using Tensor = TensorOpaque*;

/// 0: done. Else what failed is printed on stderr, too.
using Status = std::int32_t;

/// What libtorch_cpu.so exports.
struct TorchFunctions {
  // Numbers of kinds of devices and of dtypes: only these functions say them.
  std::int32_t (*aoti_torch_device_type_cpu)();
  std::int32_t (*aoti_torch_device_type_cuda)();

  /// A tensor over memory that the caller keeps. `strides` in elements.
  Status (*aoti_torch_create_tensor_from_blob)(void* data, std::int64_t ndim,
                                               const std::int64_t* sizes,
                                               const std::int64_t* strides, std::int64_t offset,
                                               std::int32_t dtype, std::int32_t device_type,
                                               std::int32_t device_index, Tensor* made);
  /// A tensor with memory of its own, not initialised.
  Status (*aoti_torch_empty_strided)(std::int64_t ndim, const std::int64_t* sizes,
                                     const std::int64_t* strides, std::int32_t dtype,
                                     std::int32_t device_type, std::int32_t device_index,
                                     Tensor* made);
  /// Between devices and dtypes, too; done when it returns, unless `non_blocking`.
  Status (*aoti_torch_copy_)(Tensor to, Tensor from, std::int32_t non_blocking);
  Status (*aoti_torch_delete_tensor_object)(Tensor tensor);

  // What is handed out is the tensor's own, as long as it lives.
  Status (*aoti_torch_get_data_ptr)(Tensor tensor, void** data);
  Status (*aoti_torch_get_dim)(Tensor tensor, std::int64_t* ndim);
  Status (*aoti_torch_get_sizes)(Tensor tensor, std::int64_t** sizes);
  Status (*aoti_torch_get_strides)(Tensor tensor, std::int64_t** strides);
  Status (*aoti_torch_get_storage_size)(Tensor tensor, std::int64_t* bytes);
  Status (*aoti_torch_get_dtype)(Tensor tensor, std::int32_t* dtype);
  Status (*aoti_torch_get_device_type)(Tensor tensor, std::int32_t* device_type);
  Status (*aoti_torch_get_device_index)(Tensor tensor, std::int32_t* device_index);

  /// What this thread's last failure says. From 2.13 on; null before.
  const char* (*torch_exception_get_what_without_backtrace)();
};

/// A model of a package, with its weights.
struct ContainerOpaque;
using Container = ContainerOpaque*;

struct Weight {
  const char* name;
  Tensor tensor;
};

/// What the library of a package exports. Those of its weights are younger than the others: a
/// package has those of the release that compiled it, whichever release runs it.
struct PackageFunctions {
  /// `device` is "cpu" or "cuda:0"; `folder` is where kernels for devices lie.
  Status (*AOTInductorModelContainerCreateWithDevice)(Container* made, std::size_t num_models,
                                                      const char* device, const char* folder);
  Status (*AOTInductorModelContainerDelete)(Container container);
  /// How arguments and answers are nested: torch's pytrees in JSON. Of the container's own.
  Status (*AOTInductorModelContainerGetCallSpec)(Container container, const char** in,
                                                 const char** out);
  Status (*AOTInductorModelContainerGetNumInputs)(Container container, std::size_t* count);
  Status (*AOTInductorModelContainerGetNumOutputs)(Container container, std::size_t* count);
  /// Inputs are taken over, each at the moment when its place is set to null; outputs are the
  /// caller's, null for none, the same one twice where two answers are one. `stream` null is the
  /// default stream of the device; `proxy_executor` is C++, for kernels from outside the package.
  Status (*AOTInductorModelContainerRun)(Container container, Tensor* inputs,
                                         std::size_t num_inputs, Tensor* outputs,
                                         std::size_t num_outputs, void* stream,
                                         void* proxy_executor);

  Status (*AOTInductorModelContainerGetNumConstants)(Container container, std::size_t* count);
  /// Of the container's own: the name that it has inside the package …
  Status (*AOTInductorModelContainerGetConstantName)(Container container, std::size_t index,
                                                     const char** name);
  /// … and that in the module which was exported.
  Status (*AOTInductorModelContainerGetConstantOriginalFQN)(Container container, std::size_t index,
                                                            const char** name);
  /// The weights in use, or those that are not, by their names in the module. All of it is the
  /// container's own, until they change. From 2.13 on.
  Status (*AOTInductorModelContainerExtractConstantsMapEntries)(Container container,
                                                                const Weight** weights,
                                                                std::size_t* count,
                                                                bool use_inactive);
  /// Copies bytes: each tensor has the dtype, sizes and strides of the one in its place. By the
  /// names inside the package. From 2.13 on.
  Status (*AOTInductorModelContainerUpdateConstantBufferPairs)(Container container,
                                                               const Weight* weights,
                                                               std::size_t count, bool use_inactive,
                                                               bool validate_full_update);
  /// The same by a std::unordered_map of whichever C++ library the package is built with: never
  /// called here, but 2.8 and younger have it, and loaders in C++ read weights by it.
  void (*AOTInductorModelContainerExtractConstantsMap)();
  /// What was not in use is what the next run uses.
  Status (*AOTInductorModelContainerSwapConstantBuffer)(Container container);

  /// What this thread's last call says of its failure. From 2.13 on; null before.
  Status (*AOTInductorGetLastError)(const char** message);
};

}  // namespace shoal::python::abi
