#include "shoal/process/codec.h"

namespace shoal::process {

void ByteWriter::append(const void* data, std::size_t count) {
  const auto* first = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), first, first + count);
}

}  // namespace shoal::process
