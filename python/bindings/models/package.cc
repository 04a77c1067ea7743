// shoal._core.models: a package of AOTInductor, run by the C interfaces that torch keeps stable.
#include <dlfcn.h>
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "models/torch.h"
#include "models/torch_abi.h"
#include "numpy_api.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

struct Close {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

/// What keeps a package's library from being loaded, in the words of who has to do something.
std::string refusal(const std::string& why) {
  constexpr std::string_view kMissing = "undefined symbol: ";
  const auto at = why.find(kMissing);
  if (at == std::string::npos) return why;
  const std::string symbol = why.substr(
      at + kMissing.size(), why.find_first_of(" ,\n", at + kMissing.size()) - at - kMissing.size());
  if (!symbol.starts_with("aoti_torch_") && !symbol.starts_with("torch_")) return why;
  return fmt::format("compiled by a newer torch: this one has no {}", symbol);
}

Library open_package(const std::string& path, const std::string& torch_folder) {
  const auto open = [&] { return Library(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)); };
  Library library = open();
  if (library) return library;
  std::string why = ::dlerror();
  if (why.starts_with("libtorch.so:")) {  // which has nothing; some linkers name it all the same
    if (::dlopen((torch_folder + "/libtorch.so").c_str(), RTLD_NOW | RTLD_NODELETE) != nullptr) {
      library = open();
      if (library) return library;
    }
    why = ::dlerror();
  }
  throw std::runtime_error(refusal(why));
}

/// Threads: any run, one at a time; load_state() beside nothing else.
class Package {
 public:
  Package(const std::string& torch_folder, const std::string& path, const std::string& device)
      : on_device_(!device.starts_with("cpu")),
        torch_(torch_folder, on_device_),
        library_(open_package(path, torch_folder)) {
    find_functions();
    if (on_device_) {
      const auto colon = device.find(':');
      device_ = {torch_.cuda(),
                 colon == std::string::npos ? 0 : std::stoi(device.substr(colon + 1))};
    }
    const std::string folder = std::filesystem::path(path).parent_path().string();
    abi::Container made = nullptr;
    check(call_.AOTInductorModelContainerCreateWithDevice(&made, 1, device.c_str(), folder.c_str()),
          "load");
    container_ = {made, call_.AOTInductorModelContainerDelete};
    check(call_.AOTInductorModelContainerGetNumInputs(made, &num_inputs_), "tell its inputs");
    check(call_.AOTInductorModelContainerGetNumOutputs(made, &num_outputs_), "tell its outputs");
    name_weights();
    find_weights();
  }

  /// Whether no other loader does more with it: one that calls C++ can change the weights of what
  /// torch 2.8 to 2.12 compiled.
  bool is_complete() const {
    const bool changes_elsewhere = !names_.empty() && !has_weight_functions() &&
                                   call_.AOTInductorModelContainerExtractConstantsMap != nullptr;
    return !changes_elsewhere && torch_.fills_missing_dimensions();
  }

  std::pair<std::string, std::string> call_spec() const {
    const char *in = nullptr, *out = nullptr;
    check(call_.AOTInductorModelContainerGetCallSpec(container_.get(), &in, &out), "tell its call");
    return {in, out};
  }

  nb::list run(const nb::list& arrays) const {
    ensure_numpy();
    std::vector<Array> given;
    for (const nb::handle array : arrays) given.push_back(torch_.array_from(array));
    if (given.size() != num_inputs_) {
      throw std::runtime_error(
          fmt::format("it takes {} arrays, got {}", num_inputs_, given.size()));
    }
    std::vector<Answer> answers;
    {
      const nb::gil_scoped_release unlocked;
      answers = answers_to(given);
    }
    nb::list made;
    for (Answer& answer : answers) {
      made.append(answer.same_as < made.size() ? nb::object(made[answer.same_as])
                                               : torch_.array_of(std::move(answer.tensor)));
    }
    return made;
  }

  nb::dict state() const {
    ensure_numpy();
    nb::dict arrays;
    for (const abi::Weight& weight : weights()) {
      arrays[nb::str(weight.name)] = torch_.array_of(torch_.for_numpy(weight.tensor));
    }
    return arrays;
  }

  void load_state(const nb::dict& arrays) {
    ensure_numpy();
    std::map<std::string, Array> given;
    for (const auto& [name, array] : arrays) {
      given.emplace(nb::cast<std::string>(name), torch_.array_from(array));
    }
    const nb::gil_scoped_release unlocked;
    std::vector<Tensor> kept;
    std::vector<abi::Weight> changed;
    for (const abi::Weight& weight : weights()) {
      const auto found = given.find(weight.name);
      if (found == given.end()) continue;
      kept.push_back(torch_.copied_as(weight.tensor, torch_.over(found->second)));
      changed.push_back({names_.at(weight.name).c_str(), kept.back().get()});
    }
    check(call_.AOTInductorModelContainerUpdateConstantBufferPairs(container_.get(), changed.data(),
                                                                   changed.size(), true, true),
          "take new weights");
    check(call_.AOTInductorModelContainerSwapConstantBuffer(container_.get()),
          "change its weights");
    find_weights();
  }

 private:
  struct Answer {
    Tensor tensor;
    std::size_t same_as;  // the index of an earlier one, or its own
  };

  void find_functions();
  void name_weights();

  bool has_weight_functions() const noexcept {
    return call_.AOTInductorModelContainerExtractConstantsMapEntries != nullptr &&
           call_.AOTInductorModelContainerUpdateConstantBufferPairs != nullptr;
  }

  void check(abi::Status status, const char* what) const {
    if (status == 0) return;
    const char* why = nullptr;
    if (call_.AOTInductorGetLastError != nullptr) call_.AOTInductorGetLastError(&why);
    if (why != nullptr && *why != 0) throw std::runtime_error(without_stack(why));
    throw std::runtime_error(
        fmt::format("the package cannot {}; why, it has written to stderr", what));
  }

  /// In use; until load_state().
  std::vector<abi::Weight> weights() const {
    if (names_.empty()) return {};
    if (!has_weight_functions()) {
      throw std::runtime_error(
          "the weights of a package that torch before 2.8 compiled can be neither read nor "
          "changed: "
          "compile it with a newer torch");
    }
    const abi::Weight* first = nullptr;
    std::size_t count = 0;
    check(call_.AOTInductorModelContainerExtractConstantsMapEntries(container_.get(), &first,
                                                                    &count, false),
          "tell its weights");
    return {first, first + count};
  }

  void find_weights() {
    weight_bytes_.clear();
    if (on_device_) return;
    if (!names_.empty() && !has_weight_functions()) {
      weight_bytes_.push_back({nullptr, SIZE_MAX});  // anywhere
      return;
    }
    for (const abi::Weight& weight : weights()) {
      weight_bytes_.push_back(torch_.bytes_of(weight.tensor));
    }
  }

  std::vector<Answer> answers_to(const std::vector<Array>& arrays) const {
    std::vector<Bytes> taken = weight_bytes_;
    std::vector<Tensor> inputs;
    for (const Array& array : arrays) {
      taken.push_back({array.data, array.num_bytes});
      Tensor input = torch_.over(array);
      if (on_device_) input = torch_.to(input, device_);
      torch_.fill_missing_dimensions(input);
      inputs.push_back(std::move(input));
    }
    const std::vector<abi::Tensor> handles = run(inputs);
    std::vector<Answer> answers;
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const auto first =
          static_cast<std::size_t>(std::ranges::find(handles, handles[i]) - handles.begin());
      answers.push_back({torch_.own(first == i ? handles[i] : nullptr), first});
    }
    if (std::ranges::find(handles, nullptr) != handles.end()) {
      throw std::runtime_error("the package answers None, where an answer is arrays");
    }
    for (Answer& answer : answers) {
      if (answer.tensor.get() == nullptr) continue;
      answer.tensor = torch_.for_numpy(std::move(answer.tensor), taken);
    }
    return answers;
  }

  std::vector<abi::Tensor> run(std::vector<Tensor>& inputs) const {
    std::vector<abi::Tensor> given, answers(num_outputs_);
    for (Tensor& input : inputs) given.push_back(input.release());
    const abi::Status status =
        call_.AOTInductorModelContainerRun(container_.get(), given.data(), given.size(),
                                           answers.data(), answers.size(), nullptr, nullptr);
    for (std::size_t i = 0; i < given.size(); ++i) {
      inputs[i] = torch_.own(given[i]);  // where it has failed before it took this one over
    }
    check(status, "answer");
    return answers;
  }

  bool on_device_;
  DeviceOf device_;
  Torch torch_;
  Library library_;
  abi::PackageFunctions call_{};
  std::unique_ptr<abi::ContainerOpaque, abi::Status (*)(abi::Container)> container_{nullptr,
                                                                                    nullptr};
  std::size_t num_inputs_ = 0, num_outputs_ = 0;
  std::map<std::string, std::string> names_;  // of weights: in the module, in the package
  std::vector<Bytes> weight_bytes_;           // on the CPU
};

void Package::find_functions() {
#define SHOAL_PACKAGE_FIND(function) \
  call_.function = reinterpret_cast<decltype(call_.function)>(::dlsym(library_.get(), #function))
#define SHOAL_PACKAGE_NEED(function) \
  SHOAL_PACKAGE_FIND(function);      \
  if (call_.function == nullptr) throw std::runtime_error("its library has no " #function)
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerCreateWithDevice);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerDelete);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerGetCallSpec);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerGetNumInputs);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerGetNumOutputs);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerRun);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerGetNumConstants);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerGetConstantName);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerGetConstantOriginalFQN);
  SHOAL_PACKAGE_NEED(AOTInductorModelContainerSwapConstantBuffer);
  SHOAL_PACKAGE_FIND(AOTInductorModelContainerExtractConstantsMapEntries);
  SHOAL_PACKAGE_FIND(AOTInductorModelContainerUpdateConstantBufferPairs);
  SHOAL_PACKAGE_FIND(AOTInductorModelContainerExtractConstantsMap);
  SHOAL_PACKAGE_FIND(AOTInductorGetLastError);
#undef SHOAL_PACKAGE_NEED
#undef SHOAL_PACKAGE_FIND
}

void Package::name_weights() {
  std::size_t count = 0;
  check(call_.AOTInductorModelContainerGetNumConstants(container_.get(), &count),
        "tell its weights");
  for (std::size_t i = 0; i < count; ++i) {
    const char *inside = nullptr, *outside = nullptr;
    check(call_.AOTInductorModelContainerGetConstantName(container_.get(), i, &inside),
          "tell its weights");
    check(call_.AOTInductorModelContainerGetConstantOriginalFQN(container_.get(), i, &outside),
          "tell its weights");
    names_.emplace(outside, inside);
  }
}

}  // namespace

void bind_models(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("models", "Models of files, run by the user's torch.");
  nb::class_<Package>(module, "Package",
                      "The library of a package of AOTInductor, run by torch's C interface.")
      .def(
          nb::init<const std::string&, const std::string&, const std::string&>(), "torch_folder"_a,
          "path"_a, "device"_a, nb::call_guard<nb::gil_scoped_release>(),
          "`torch_folder` has libtorch_cpu.so; `device` is \"cpu\", \"cuda\" or \"cuda:0\", which "
          "it was compiled for. The file is not needed any more on the CPU. RuntimeError says what "
          "torch does not like in it.")
      .def_prop_ro("is_complete", &Package::is_complete,
                   "Whether no other loader does more with it. Only then may it be used.")
      .def_prop_ro("call_spec", &Package::call_spec,
                   "How its arguments and its answer are nested, as torch's pytrees in JSON.")
      .def("run", nb::overload_cast<const nb::list&>(&Package::run, nb::const_), "arrays"_a,
           "The arrays of an answer for those of the arguments, without the GIL.")
      .def("state", &Package::state, "A copy of the weights that it has by name.")
      .def("load_state", &Package::load_state, "arrays"_a,
           "New values of them, of their shapes; all at once for the next run.");
}

}  // namespace shoal::python
