#include "objects/packers.h"

#include <nanobind/stl/string.h>

#include <functional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};

/// Written under the GIL when tensors.py and arrays.py are imported.
struct Table {
  std::unordered_map<const PyTypeObject*, KnownPacker> by_type;
  std::unordered_map<std::string, const Packer*, Hash, std::equal_to<>> by_module;
};

Table& table() {
  static Table* const the = new Table;
  return *the;
}

void add_packer(nb::handle type, nb::handle packer, const std::string& module) {
  if (!PyType_Check(type.ptr())) throw nb::type_error("not a type");
  const auto* const known =
      static_cast<const Packer*>(PyCapsule_GetPointer(packer.ptr(), Packer::kName));
  if (known == nullptr) throw nb::python_error();
  auto* const key = reinterpret_cast<PyTypeObject*>(nb::borrow(type).release().ptr());  // for ever
  table().by_type[key] = {known, module};
  table().by_module[module] = known;
}

}  // namespace

const KnownPacker* packer_of(const PyTypeObject* type) {
  const auto found = table().by_type.find(type);
  return found == table().by_type.end() ? nullptr : &found->second;
}

const Packer& packer_of_module(std::string_view module) {
  const auto& packers = table().by_module;
  if (const auto found = packers.find(module); found != packers.end()) return *found->second;
  try {
    nb::module_::import_(std::string(module).c_str());
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
  }
  const auto found = packers.find(module);
  if (found == packers.end()) throw std::invalid_argument("bytes whose packer is in no module");
  return *found->second;
}

void bind_packers(nb::module_& module) {
  module.def("add_packer", &add_packer, "type"_a, "packer"_a, "module"_a,
             "Objects of exactly this type cross by this packer, which is there wherever `module` "
             "is imported.");
}

}  // namespace shoal::python
