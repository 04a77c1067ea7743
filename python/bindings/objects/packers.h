// How objects of a type become bytes that another process makes them of again: arrays, tensors.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace shoal::python {

/// Threads: with the GIL. Those of a process are never destroyed.
struct Packer {
  PyObject* function;  // function(obj, blocks): bytes, or None; owned for ever, as the type is
  std::string module;  // where the function is that makes objects of these bytes
  std::string name;
  std::string unpacker;  // both in one, for unpack()

  /// The bytes, or none where the object is to be left to others; the blocks that they name are
  /// appended to `blocks`. Raises what the function raises, and may give the GIL back meanwhile.
  nanobind::object pack(nanobind::handle object, nanobind::handle blocks) const;
};

/// The packer for objects of exactly this type; nullptr: none.
const Packer* packer_of(const PyTypeObject* type);

/// What `unpacker` makes of `packed`, in whichever process. Raises what that raises, and
/// ImportError.
nanobind::object unpack(std::string_view unpacker, std::string_view packed);

/// Whether `object` is None, bool, int (64 bits), float, str or bytes, has a packer, or is a tuple,
/// list or dict of such, of exactly these types, and neither deep nor large. Asks no Python code.
bool is_packable_tree(nanobind::handle object);

/// ipc.add_packer(type, packer, module, name).
void bind_packers(nanobind::module_& module);

}  // namespace shoal::python
