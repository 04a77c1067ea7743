// TorchScript: what torch.jit.save() wrote.
#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <nanobind/stl/string.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "models/models.h"
#include "models/models_arrays.h"
#include "shoal/os/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

/// Threads: any run; load_state() beside nothing else.
class TorchScript {
 public:
  TorchScript(const std::string& path, const std::string& device) : device_(device) {
    const nb::gil_scoped_release unlocked;
    try {
      module_ = torch::jit::load(path, device_);
      module_.eval();
    } catch (...) {
      rethrow_plainly();
    }
  }

  nb::object run(const nb::list& args, const nb::dict& kwargs) {
    std::vector<at::Tensor> inputs;
    std::vector<c10::IValue> stack;
    for (const nb::handle arg : args) stack.push_back(value_of(arg, inputs));
    torch::jit::Kwargs named;
    for (const auto& [name, arg] : kwargs) {
      named[nb::cast<std::string>(name)] = value_of(arg, inputs);
    }
    const c10::IValue answer =
        without_gil([&] { return module_.get_method("forward")(std::move(stack), named); });
    return object_of(answer, inputs);
  }

  nb::dict state() const {
    State copies;
    for (const auto& [name, tensor] : tensors()) copies[name] = tensor.detach().clone();
    return arrays_of(copies);
  }

  void load_state(const nb::dict& arrays) {
    const State given = state_over(arrays);
    const nb::gil_scoped_release unlocked;
    const c10::AutoGradMode no_gradients(false);
    try {
      for (auto& [name, tensor] : tensors()) tensor.copy_(given.at(name));
    } catch (...) {
      rethrow_plainly();
    }
  }

 private:
  State tensors() const {
    State all;
    for (const auto& entry : module_.named_parameters()) all[entry.name] = entry.value;
    for (const auto& entry : module_.named_buffers()) all[entry.name] = entry.value;
    return all;
  }

  c10::IValue value_of(nb::handle object, std::vector<at::Tensor>& inputs) {
    if (nb::isinstance<nb::tuple>(object)) {
      std::vector<c10::IValue> parts;
      for (const nb::handle part : nb::borrow<nb::tuple>(object)) {
        parts.push_back(value_of(part, inputs));
      }
      return c10::ivalue::Tuple::create(std::move(parts));
    }
    if (nb::isinstance<nb::dict>(object)) {
      c10::Dict<std::string, at::Tensor> named;
      for (const auto& [name, part] : nb::borrow<nb::dict>(object)) {
        const c10::IValue value = value_of(part, inputs);
        if (!value.isTensor()) {
          throw InvalidArgument(
              "a dict that is given to TorchScript has arrays only, no tuples or "
              "dicts: its type there is Dict[str, Tensor]");
        }
        named.insert(nb::cast<std::string>(name), value.toTensor());
      }
      return named;
    }
    at::Tensor tensor = tensor_over(nb::cast<Array>(object));
    if (!device_.is_cpu()) tensor = tensor.to(device_);
    inputs.push_back(tensor);
    return tensor;
  }

  nb::object object_of(const c10::IValue& value, const std::vector<at::Tensor>& inputs) const {
    if (value.isTensor()) return array_of(value.toTensor(), inputs);
    if (value.isTuple() || value.isList()) {
      nb::list parts;
      if (value.isTuple()) {
        for (const auto& part : value.toTupleRef().elements()) {
          parts.append(object_of(part, inputs));
        }
        return nb::tuple(parts);
      }
      for (const c10::IValue& part : value.toListRef()) parts.append(object_of(part, inputs));
      return parts;
    }
    if (value.isGenericDict()) {
      nb::dict named;
      for (const auto& entry : value.toGenericDict()) {
        if (!entry.key().isString())
          throw InvalidArgument("the model answered with a dict whose keys are no strings");
        named[nb::str(entry.key().toStringRef().c_str())] = object_of(entry.value(), inputs);
      }
      return named;
    }
    throw InvalidArgument("the model answered with a TorchScript " + value.tagKind() +
                          ": an answer is a tensor whose first dimension is the rows, or a tuple, "
                          "list or dict of them");
  }

  c10::Device device_;
  torch::jit::Module module_;
};

}  // namespace

void bind_torchscript(nb::module_& module) {
  nb::class_<TorchScript>(module, "TorchScript", "A file of torch.jit.save().")
      .def(nb::init<const std::string&, const std::string&>(), "path"_a, "device"_a,
           "RuntimeError says what LibTorch does not like in the file.")
      .def("run", &TorchScript::run, "args"_a, "kwargs"_a,
           "forward() of C-contiguous arrays, tuples and dicts of them; its answer as arrays.")
      .def("state", &TorchScript::state, "A copy of its parameters and buffers, by name.")
      .def("load_state", &TorchScript::load_state, "arrays"_a,
           "New values of all of them, of their shapes.");
}

}  // namespace shoal::python
