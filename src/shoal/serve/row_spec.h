// The arrays that one row of a request, or of a reply, consists of.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/process/codec.h"
#include "shoal/shm/tensor.h"

namespace shoal::serve {

/// The arrays of one row, in order, without a batch dimension.
using RowSpec = std::vector<shm::TensorSpec>;

/// Bytes of a row whose arrays are each aligned to kLeafAlignment.
inline constexpr std::size_t kLeafAlignment = 64;
std::size_t aligned_bytes(const shm::TensorSpec& leaf) noexcept;
std::size_t row_bytes(const RowSpec& spec) noexcept;

/// Throws InvalidArgument, naming the limit, where a message cannot describe such a row. `what` is
/// the subject of the sentence.
void check_row_spec(const RowSpec& spec, std::string_view what);

void write(process::ByteWriter& writer, const RowSpec& spec);
/// Throws Error for a spec that no writer makes.
RowSpec read_row_spec(process::ByteReader& reader);

/// "float32[4], uint8[84, 84]".
std::string describe(const RowSpec& spec);

}  // namespace shoal::serve
