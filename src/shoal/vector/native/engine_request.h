// What a vector environment asks of steppers of any kind, by the way that requests go: options of
// resets of native environments, and snapshots.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shoal/vector/async/async_vector_env.h"
#include "shoal/vector/step/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// The answer, where `message` is one of these requests; nothing where it is the face's own. Called
/// by the request() of steppers.
std::optional<std::vector<std::byte>> answer_engine_request(Stepper& stepper,
                                                            std::span<const std::byte> message);

/// `options` (a JSON object) for every explicit reset from now on; none where it is empty. Throws
/// InvalidArgument, with nothing changed, for options that the environments do not take.
void set_reset_options(VectorEnv& envs, std::string_view options);

/// Throws InvalidArgument for options that the environments do not take. Waits for a worker, where all
/// are busy.
void check_reset_options(AsyncVectorEnv& envs, std::string_view options);

/// `options`, which were checked, for the next explicit resets of these rows alone; waits for nobody.
void tell_reset_options(AsyncVectorEnv& envs, std::span<const std::int64_t> rows,
                        std::string_view options);

/// The states of these environments: each with all that decides how it goes on, its row, its
/// episode and its pending autoreset included. Not while a call is under way. Throws
/// InvalidArgument for an environment that is not there, InvalidState for one that does not support
/// it.
std::vector<std::vector<std::byte>> snapshot(VectorEnv& envs, std::span<const int> environments);

/// Environment environments[i] becomes what states[i] says: of this VectorEnv, or of one of the
/// same kind with the same options. Throws InvalidArgument for states that do not fit.
void restore(VectorEnv& envs, std::span<const int> environments,
             std::span<const std::vector<std::byte>> states);

}  // namespace shoal::vector
