// What computes the replies of a model service, where that is C++.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/serve/server.h"

namespace shoal::serve {

/// One model.
/// Threads: the executor's alone.
class Backend {
 public:
  virtual ~Backend() = default;

  /// What replies to rows of this kind are made of. Throws ModelError when it takes none.
  virtual RowSpec outputs(const RequestKind& kind, std::span<const std::byte> example) = 0;

  /// Writes the replies of all rows of the batch and calls reply() or fail() for each. What it
  /// throws fails the rows that have no reply.
  virtual void run(Server& server, Batch& batch) = 0;
};

/// A reply is its row. For tests, and to measure what the service itself costs.
class EchoBackend final : public Backend {
 public:
  RowSpec outputs(const RequestKind& kind, std::span<const std::byte> example) override;
  void run(Server& server, Batch& batch) override;
};

/// The executor: one backend for each model of the server, until nobody wants it any more.
void run(Server& server, std::span<const std::unique_ptr<Backend>> backends);

}  // namespace shoal::serve
