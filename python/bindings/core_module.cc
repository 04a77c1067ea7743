// shoal._core: the C++ side of the Python package. Importing it imports neither NumPy nor torch.
#include "bindings.h"
#include "shoal/version.h"

NB_MODULE(_core, module) {
  module.doc() = "Shoal's C++ engine. Use it through the shoal package.";
  module.attr("version") = shoal::version();
  shoal::python::bind_errors(module);
  shoal::python::bind_ipc(module);
  shoal::python::bind_ipc_queue(module);
  shoal::python::bind_synchronize(module);
  shoal::python::bind_process(module);
  shoal::python::bind_identity(module);
  shoal::python::bind_gpu_guard(module);
  shoal::python::bind_env(module);
  shoal::python::bind_vector(module);
  shoal::python::bind_async(module);
  shoal::python::bind_pool(module);
  shoal::python::bind_serve(module);
}
