// shoal._models: models of files, run by LibTorch without Python's torch. Use it through
// shoal.serve.
#include "models/models.h"

NB_MODULE(_models, module) {
  using namespace shoal::python;
  module.doc() = "Models of files, run without Python. Use them through shoal.serve.";
  nanobind::module_::import_("shoal._core");  // its exceptions are ours too
  bind_torchscript(module);
  bind_package(module);
}
