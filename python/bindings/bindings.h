// What each file of the bindings adds to the module `shoal._core`: one function a layer.
#pragma once

#include <nanobind/nanobind.h>

namespace shoal::python {

void bind_errors(nanobind::module_& module);
void bind_synchronize(nanobind::module_& module);
void bind_process(nanobind::module_& module);
void bind_ipc(nanobind::module_& module);
void bind_ipc_queue(nanobind::module_& module);
void bind_identity(nanobind::module_& module);
void bind_gpu_guard(nanobind::module_& module);
void bind_env(nanobind::module_& module);
void bind_atari(nanobind::module_& module);
void bind_vector(nanobind::module_& module);
void bind_async(nanobind::module_& module);
void bind_pool(nanobind::module_& module);
void bind_serve(nanobind::module_& module);
void bind_collect(nanobind::module_& module);
void bind_models(nanobind::module_& module);
void bind_tensors(nanobind::module_& module);
void bind_board(nanobind::module_& module);
void bind_trace(nanobind::module_& module);
void bind_log(nanobind::module_& module);
void bind_group(nanobind::module_& module);

}  // namespace shoal::python
