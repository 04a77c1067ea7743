// shoal._core: the C++ side of the Python package. Importing it imports neither NumPy nor torch.
#include <unistd.h>

#include "bindings.h"
#include "shoal/version.h"

namespace nb = nanobind;

namespace {

pid_t imported_by = -1;

/// At exit. What a daemon thread holds then is never let go, nor in a forked child what threads of
/// its parent hold, nor the array of torch.from_numpy() that a module still has, and no leak of
/// ours: nanobind is not to tell the user of it. Otherwise it does, which is how tests see a leak.
void forgive_others() {
  PyThreadState* const thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
  const bool daemons = thread != nullptr && PyThreadState_Next(thread) != nullptr;
  const bool has_torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch") != nullptr;
  if (daemons || has_torch || ::getpid() != imported_by) nb::set_leak_warnings(false);
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "Shoal's C++ engine. Use it through the shoal package.";
  imported_by = ::getpid();
  module.attr("version") = shoal::version();
  shoal::python::bind_errors(module);
  shoal::python::bind_ipc(module);
  shoal::python::bind_ipc_queue(module);
  shoal::python::bind_synchronize(module);
  shoal::python::bind_process(module);
  shoal::python::bind_identity(module);
  shoal::python::bind_gpu_guard(module);
  shoal::python::bind_env(module);
  shoal::python::bind_atari(module);
  shoal::python::bind_vector(module);
  shoal::python::bind_async(module);
  shoal::python::bind_pool(module);
  shoal::python::bind_serve(module);
  shoal::python::bind_collect(module);
  shoal::python::bind_models(module);
  shoal::python::bind_tensors(module);
  shoal::python::bind_board(module);
  shoal::python::bind_trace(module);
  shoal::python::bind_log(module);
  shoal::python::bind_group(module);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&forgive_others));
}
