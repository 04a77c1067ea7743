// A capture as a file for ui.perfetto.dev and chrome://tracing: the JSON of "Trace Event Format".
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shoal/trace/capture.h"

namespace shoal::trace {

/// Writes `path` anew; times begin at `origin_ns`, and what began before is cut there. Spans that may
/// overlap on their thread have tracks of their own. Throws SystemError.
void write_chrome_json(const std::string& path, std::span<const CapturedProcess> processes,
                       std::uint64_t origin_ns);

}  // namespace shoal::trace
