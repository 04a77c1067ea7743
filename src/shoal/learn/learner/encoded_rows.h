// Raw observations as a network takes them, and room for its actions, of any number of rows; what acts
// uses them again.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/observation_encoder.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class EncodedRows {
 public:
  /// Encodes without learning; valid until the next call.
  std::span<const shm::TensorView> encode(collect::ObservationEncoder& encoder,
                                          std::span<const shm::TensorView> raw);
  /// Room for as many actions; valid until the next call.
  shm::TensorView actions(const shm::TensorSpec& spec, std::int64_t rows);

 private:
  std::vector<std::vector<std::byte>> obs_;
  std::vector<shm::TensorView> views_;
  std::vector<std::byte> actions_;
};

}  // namespace shoal::learn
