// What each file of the bindings adds to the module `shoal._models`.
#pragma once

#include <nanobind/nanobind.h>

namespace shoal::python {

void bind_torchscript(nanobind::module_& module);
void bind_package(nanobind::module_& module);

}  // namespace shoal::python
