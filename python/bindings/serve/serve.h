// NumPy arrays as the rows of a model service, and back.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <vector>

#include "shoal/serve/row_spec.h"

namespace shoal::python {

/// Rows that were given as arrays; keeps the arrays.
struct GivenRows {
  std::vector<nanobind::object> arrays;  // C-contiguous
  serve::RowSpec spec;                   // of one row
  std::vector<const std::byte*> leaves;
  std::int64_t rows = 1;
};

/// `arrays` is a list of array-likes; `batched` ones have the rows as their first dimension. Throws
/// ValueError for arrays of different numbers of rows, of none, and of dtypes that cannot cross.
GivenRows rows_of(nanobind::list arrays, bool batched);

void bind_serve_client(nanobind::module_& module);
void bind_serve_remote(nanobind::module_& module);

}  // namespace shoal::python
