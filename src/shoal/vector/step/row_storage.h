// Rows in this process's own memory, for the backends that need no other process.
#pragma once

#include <cstddef>

#include "shoal/os/memory/mapping.h"
#include "shoal/vector/step/rows.h"

namespace shoal::vector {

/// Owns zeroed, page-aligned memory for the rows of these spaces; movable, the views stay valid.
/// Threads: one at a time.
/// Processes, death: private memory of this one, which ends with it.
class RowStorage {
 public:
  /// Throws SystemError(ENOMEM), naming the size, when memory is short.
  RowStorage(const env::Space& observation, const env::Space& action, int num_envs,
             AutoresetMode mode);

  const Rows& rows() const noexcept { return rows_; }

 private:
  os::Mapping memory_;
  Rows rows_;
};

}  // namespace shoal::vector
