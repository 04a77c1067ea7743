#include "shoal/trace/span.h"

#include <array>
#include <cstddef>

namespace shoal::trace {
namespace {

struct SpanText {
  const char* name;
  const char* category;
  const char* argument;
};

constexpr std::array<SpanText, static_cast<std::size_t>(Span::kCount)> kTexts = {{
    {"", "", ""},
    {"step", "vector", "round"},
    {"reset", "vector", "round"},
    {"wait", "vector", "round"},
    {"copy", "vector", "rows"},
    {"worker.step", "worker", "round"},
    {"worker.reset", "worker", "round"},
    {"env.step", "worker", "env"},
    {"env.reset", "worker", "env"},
    {"batch", "serve", "rows"},
    {"service.wait", "serve", "rows"},
    {"infer", "collect", "envs"},
    {"collect", "learn", "envs"},
    {"update", "learn", "envs"},
    {"evaluate", "learn", "envs"},
    {"save", "learn", "envs"},
    {"wake", "vector", "round"},
}};

const SpanText& text_of(Span span) noexcept {
  const auto index = static_cast<std::size_t>(span);
  return kTexts[index < kTexts.size() ? index : 0];
}

}  // namespace

const char* name_of(Span span) noexcept { return text_of(span).name; }
const char* category_of(Span span) noexcept { return text_of(span).category; }
const char* argument_of(Span span) noexcept { return text_of(span).argument; }
bool overlaps(Span span) noexcept { return span == Span::kStep || span == Span::kReset; }

}  // namespace shoal::trace
