// The memory of two storages changes places: so a storage moves, and all that looks at it follows.
//
// torch has this from 2.12 on (UntypedStorage._swap_data_ptr_). In 2.6 to 2.11 the words of the
// storages are exchanged that hold the address, and how it is given back; where they lie is looked
// up in the object, and proved on two storages, before anything of a user's is touched.
#pragma once

#include <nanobind/nanobind.h>

namespace shoal::python {

enum class Exchange {
  kTorchs,  // by torch's own function
  kWords,   // word by word
  kNone,    // neither: this torch's storages are of another kind
};

/// How it is done in this process; found once. Needs the GIL.
Exchange exchange_kind();

/// Exchanges the memory of two storages of one device and size, and whether their size is fixed.
/// Not for kNone. Needs the GIL.
void exchange_memory(nanobind::handle one, nanobind::handle other);

}  // namespace shoal::python
