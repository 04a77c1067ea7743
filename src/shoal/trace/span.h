// What is traced: the spans of time that Shoal's parts spend on something.
#pragma once

#include <cstdint>

namespace shoal::trace {

/// Its number stands in shared memory. A new one goes to the end.
enum class Span : std::uint8_t {
  kNone,
  // vector: the caller. `arg`: the number of the round; 0 where environments are stepped one by one.
  kStep,   // from step_async() to the end of wait()
  kReset,  // the same of reset_async()
  kWait,   // for the workers
  kCopy,   // actions into shared memory, or a batch out of it; arg: rows
  // vector: a worker. `arg`: the number of the round, or how many environments.
  kWorkerStep,
  kWorkerReset,
  // vector: the code of environments. `arg`: which one, or of native ones how many.
  kEnvStep,
  kEnvReset,
  // serve. `arg`: rows.
  kBatch,        // from the moment a batch leaves to its last reply
  kServiceWait,  // a client, for replies
  // collect and learn. `arg`: environments, or 0.
  kInfer,  // a policy chooses actions
  kCollect,
  kUpdate,
  kEvaluate,
  kSave,
  kWake,  // vector: the caller wakes its workers, who may take its CPU from it. `arg`: as of kStep
  kCount,
};

/// As viewers show it.
const char* name_of(Span span) noexcept;
/// The layer that it is of: "vector", "serve", …
const char* category_of(Span span) noexcept;
/// What `arg` is.
const char* argument_of(Span span) noexcept;
/// Whether it may begin inside of one of its kind and end after it, on the same thread.
bool overlaps(Span span) noexcept;

}  // namespace shoal::trace
