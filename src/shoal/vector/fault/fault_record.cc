#include "shoal/vector/fault/fault_record.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::vector {
namespace {

std::string history(const std::string& why, const std::vector<Fault>& faults) {
  std::string text = why;
  for (const Fault& fault : faults) text += "\n" + fault->describe();
  return text;
}

}  // namespace

std::string_view name(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::kException:
      return "exception";
    case FaultKind::kKilled:
      return "killed";
    case FaultKind::kHang:
      return "hang";
    case FaultKind::kMemory:
      return "memory";
    case FaultKind::kExit:
      break;
  }
  return "exit";
}

std::string FaultRecord::describe() const {
  std::string text = fmt::format("fault {} ({}): {}", number, name(kind), message);
  if (!details.empty()) text += "\n" + details;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

TooManyFaults::TooManyFaults(const std::string& why, std::vector<Fault> faults)
    : Error(history(why, faults)), faults_(std::move(faults)) {}

}  // namespace shoal::vector
