// What computes the replies of a model service in C++.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/serve/server.h"

namespace shoal::serve {

/// One model; a resource.
/// Threads: the executor's alone.
/// Processes: the server's.
class Backend {
 public:
  virtual ~Backend() = default;

  /// The arrays of a reply to a row of this kind, of which `example` is one. Throws ModelError when
  /// the model refuses such rows.
  virtual RowSpec outputs(const RequestKind& kind, std::span<const std::byte> example) = 0;

  /// Writes the replies of all rows of the batch, and calls reply() or fail() for each. When it
  /// throws, the rows without a reply fail.
  virtual void run(Server& server, Batch& batch) = 0;
};

/// Replies to each row with the row itself: for tests, and to measure the service itself.
class EchoBackend final : public Backend {
 public:
  RowSpec outputs(const RequestKind& kind, std::span<const std::byte> example) override;
  void run(Server& server, Batch& batch) override;
};

/// The executor's loop, with one backend for each model of the server; returns at ServerEnd.
void run(Server& server, std::span<const std::unique_ptr<Backend>> backends);

}  // namespace shoal::serve
