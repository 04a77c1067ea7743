// AOTInductor: what torch._inductor.aoti_compile_and_package() wrote.
#include <ATen/Functions.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "models/models.h"
#include "models/models_arrays.h"
#include "shoal/os/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using torch::inductor::AOTIModelPackageLoader;

/// A package compares the sizes that it knows and trusts the number of dimensions: of a tensor that
/// has fewer it would read what stood there before. Now ones stand there.
void fill_missing_dimensions(at::Tensor& tensor) {
  const std::vector<std::int64_t> sizes = tensor.sizes().vec();
  constexpr std::int64_t kOnes[] = {1, 1, 1, 1, 1};  // what a tensor has room for by itself
  if (sizes.size() >= std::size(kOnes)) return;
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(kOnes);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
}

/// Threads: any run, one at a time; load_state() beside nothing else.
class Package {
 public:
  Package(const std::string& folder, int device) {
    static std::mutex one_at_a_time;  // of this process: constructing is not thread-safe
    const nb::gil_scoped_release unlocked;
    const std::lock_guard lock(one_at_a_time);
    try {
      loader_ = std::make_unique<AOTIModelPackageLoader>(folder, "model", false, 1,
                                                         static_cast<c10::DeviceIndex>(device));
      spec_ = loader_->get_call_spec();
      device_ = loader_->get_metadata()["AOTI_DEVICE_KEY"];
      index_ = device;
    } catch (...) {
      rethrow_plainly();
    }
  }

  const std::vector<std::string>& call_spec() const noexcept { return spec_; }
  const std::string& device() const noexcept { return device_; }

  nb::list run(const nb::list& arrays) {
    std::vector<at::Tensor> inputs;
    for (const nb::handle array : arrays) inputs.push_back(tensor_over(nb::cast<Array>(array)));
    const std::vector<at::Tensor> answers = without_gil([&] {
      for (at::Tensor& input : inputs) {
        if (device_ != "cpu") input = input.to(c10::Device(device_ + ":" + std::to_string(index_)));
        fill_missing_dimensions(input);
      }
      return loader_->run(inputs);
    });
    nb::list made;
    for (const at::Tensor& answer : answers) made.append(array_of(answer, inputs));
    return made;
  }

  nb::dict state() const {
    State copies;
    for (const auto& [name, tensor] : constants()) copies[name] = tensor.clone();
    return arrays_of(copies);
  }

  void load_state(const nb::dict& arrays) {
    const State given = state_over(arrays);
    const nb::gil_scoped_release unlocked;
    try {
      std::unordered_map<std::string, at::Tensor> converted;  // what is copied are bytes
      for (const auto& [name, own] : constants()) {
        const auto found = given.find(name);
        if (found == given.end()) continue;
        at::Tensor tensor = at::empty_strided(own.sizes(), own.strides(), own.options());
        converted[name] = tensor.copy_(found->second);
      }
      loader_->load_constants(converted, true, true);
      loader_->get_runner()->swap_constant_buffer();
    } catch (...) {
      rethrow_plainly();
    }
  }

 private:
  /// By their names in the module that was exported.
  State constants() const {
    const auto all = loader_->get_runner()->extract_constants_map(false);
    State named;
    for (const std::string& name : loader_->get_constant_fqns()) {
      if (const auto found = all.find(name); found != all.end()) named[name] = found->second;
    }
    return named;
  }

  std::unique_ptr<AOTIModelPackageLoader> loader_;
  std::vector<std::string> spec_;
  std::string device_;
  int index_ = -1;
};

}  // namespace

void bind_package(nb::module_& module) {
  nb::class_<Package>(module, "Package", "A package of AOTInductor, unpacked.")
      .def(nb::init<const std::string&, int>(), "folder"_a, "device"_a,
           "`device` is the number of a CUDA device; -1 on the CPU. The folder is not needed any "
           "more there.")
      .def_prop_ro("call_spec", &Package::call_spec,
                   "How its arguments and its answer are nested, as torch's pytrees in JSON.")
      .def_prop_ro("device", &Package::device, "\"cpu\" or \"cuda\", which it was compiled for.")
      .def("run", &Package::run, "arrays"_a, "The arrays of an answer for those of the arguments.")
      .def("state", &Package::state, "A copy of the weights that it has by name.")
      .def("load_state", &Package::load_state, "arrays"_a,
           "New values of them, of their shapes; all at once for the next run.");
}

}  // namespace shoal::python
