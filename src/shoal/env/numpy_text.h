// Numbers as numpy's str() writes them, so that a space's repr reads as Gymnasium's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/shm/dtype.h"

namespace shoal::env::numpy {

/// `str(dtype(value))`: "4.8", "1e-05", "inf", "255".
std::string scalar_text(double value, shm::DType dtype);

/// `str()` of the C-contiguous array, on one line: "[-1.  -0.5 inf]". `values` of size 1 stands for
/// all elements.
std::string array_text(const std::vector<double>& values, const std::vector<std::int64_t>& shape,
                       shm::DType dtype);
std::string array_text(const std::vector<std::int64_t>& values,
                       const std::vector<std::int64_t>& shape);

}  // namespace shoal::env::numpy
