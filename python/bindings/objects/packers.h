// How objects of a type become bytes that another process makes them of again: arrays, tensors.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>

#include "objects/packed.h"

namespace shoal::python {

/// Threads: with the GIL. Lives for ever, as a constant of an extension module.
struct Packer {
  /// Nothing where the object is to be left to others. Throws what goes wrong, and may give the GIL
  /// back meanwhile.
  std::optional<Packed> (*pack)(nanobind::handle object);
  /// Throws for bytes that pack() did not write, or of another family's heap.
  nanobind::object (*unpack)(std::string_view packed);

  /// As ipc.add_packer() takes it.
  nanobind::capsule capsule() const { return nanobind::capsule(this, kName); }
  static constexpr const char* kName = "shoal.Packer";
};

struct KnownPacker {
  const Packer* packer;
  std::string module;  // whose import adds it
};

/// The packer for objects of exactly this type; nullptr: none.
const KnownPacker* packer_of(const PyTypeObject* type);

/// The one that `module` adds, which is imported now if nobody has yet. Throws ImportError.
const Packer& packer_of_module(std::string_view module);

/// ipc.add_packer(type, packer, module).
void bind_packers(nanobind::module_& module);

}  // namespace shoal::python
