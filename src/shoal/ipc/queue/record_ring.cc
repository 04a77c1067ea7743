#include "shoal/ipc/queue/record_ring.h"

#include <cstring>

namespace shoal::ipc {

using layout::kUnit;
using layout::RecordKind;

std::uint32_t RecordRing::write(std::uint32_t end, const Header& header,
                                std::span<const std::byte> bytes) const noexcept {
  const std::uint32_t units = units_of(bytes.size());
  const std::uint32_t start = place(end, units);
  if (start != end) {
    const Header filler{(start - end) * kUnit, RecordKind::kFiller, 0, 0};
    std::memcpy(at(end), &filler, sizeof filler);
  }
  std::memcpy(at(start), &header, sizeof header);
  if (!bytes.empty()) std::memcpy(at(start) + kUnit, bytes.data(), bytes.size());
  return start + units;
}

std::uint32_t RecordRing::skip_filler(std::uint32_t begin) const noexcept {
  return header(begin).kind == RecordKind::kFiller ? next(begin) : begin;
}

std::uint32_t RecordRing::next(std::uint32_t position) const noexcept {
  const Header& here = header(position);
  switch (here.kind) {
    case RecordKind::kFiller:
      return position + here.bytes / kUnit;
    case RecordKind::kInline:
      return position + units_of(here.bytes);
    case RecordKind::kBlock:
      break;
  }
  return position + units_of(0);
}

void RecordRing::copy_to(const RecordRing& larger, std::uint32_t begin,
                         std::uint32_t end) const noexcept {
  while (begin != end) {
    const std::uint32_t left = capacity() - (begin & (capacity() - 1));
    const std::uint32_t units = end - begin < left ? end - begin : left;
    std::memcpy(larger.at(begin), at(begin), std::size_t{units} * kUnit);
    begin += units;
  }
}

}  // namespace shoal::ipc
