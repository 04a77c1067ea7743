// What crosses to another process in place of an array or a tensor.
#pragma once

#include <string>
#include <vector>

#include "shoal/ipc/heap/block.h"

namespace shoal::python {

struct Packed {
  std::string bytes;
  std::vector<ipc::Block> blocks;  // that the bytes name
};

}  // namespace shoal::python
