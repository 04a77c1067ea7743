// Compiled without instrumentation: what it does is not of the program that is tested.
#include "coverage.h"

#include <array>
#include <bit>

namespace shoal::fuzz {
namespace {

constexpr std::size_t kPlaces = std::size_t{1} << 16;
constexpr std::size_t kComparisons = 64;

// Threads of a target share these: a lost count is of no account.
std::array<std::uint8_t, kPlaces> hits{};
std::array<std::uint16_t, kPlaces> touched{};
std::size_t touched_count = 0;
std::array<std::uint8_t, kPlaces> seen{};  // a bit for each power of two of hits
std::size_t places_count = 0;
std::array<Comparison, kComparisons> compared{};
std::size_t compared_count = 0;

inline void reach(std::uintptr_t place) noexcept {
  const auto at = static_cast<std::uint16_t>(place ^ place >> 16);
  const std::uint8_t count = hits[at];
  if (count == 255) return;
  hits[at] = static_cast<std::uint8_t>(count + 1);
  if (count == 0 && touched_count < kPlaces) touched[touched_count++] = at;
}

inline void compare(std::uint64_t one, std::uint64_t other, std::size_t bytes) noexcept {
  if (one != other) compared[compared_count++ % kComparisons] = {one, other, bytes};
}

}  // namespace

void Coverage::begin() noexcept {
  for (std::size_t i = 0; i < touched_count; ++i) hits[touched[i]] = 0;
  touched_count = 0;
  compared_count = 0;
}

bool Coverage::is_new() noexcept {
  bool found = false;
  for (std::size_t i = 0; i < touched_count; ++i) {
    const std::uint16_t at = touched[i];
    const auto often = static_cast<std::uint8_t>(1u << (std::bit_width(hits[at]) - 1u));
    if ((seen[at] & often) != 0) continue;
    if (seen[at] == 0) ++places_count;
    seen[at] = static_cast<std::uint8_t>(seen[at] | often);
    found = true;
  }
  return found;
}

std::size_t Coverage::places() noexcept { return places_count; }

std::span<const Comparison> Coverage::comparisons() noexcept {
  return std::span(compared).first(compared_count < kComparisons ? compared_count : kComparisons);
}

}  // namespace shoal::fuzz

using shoal::fuzz::compare;
using shoal::fuzz::reach;

// What the compiler's -fsanitize-coverage=trace-pc,trace-cmp calls.
extern "C" {
void __sanitizer_cov_trace_pc() {
  reach(reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
}
void __sanitizer_cov_trace_cmp1(std::uint8_t a, std::uint8_t b) { compare(a, b, 1); }
void __sanitizer_cov_trace_cmp2(std::uint16_t a, std::uint16_t b) { compare(a, b, 2); }
void __sanitizer_cov_trace_cmp4(std::uint32_t a, std::uint32_t b) { compare(a, b, 4); }
void __sanitizer_cov_trace_cmp8(std::uint64_t a, std::uint64_t b) { compare(a, b, 8); }
void __sanitizer_cov_trace_const_cmp1(std::uint8_t a, std::uint8_t b) { compare(b, a, 1); }
void __sanitizer_cov_trace_const_cmp2(std::uint16_t a, std::uint16_t b) { compare(b, a, 2); }
void __sanitizer_cov_trace_const_cmp4(std::uint32_t a, std::uint32_t b) { compare(b, a, 4); }
void __sanitizer_cov_trace_const_cmp8(std::uint64_t a, std::uint64_t b) { compare(b, a, 8); }
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}
void __sanitizer_cov_trace_switch(std::uint64_t value, std::uint64_t* cases) {
  // cases[0] of them, each cases[1] bits wide
  const std::size_t count = cases[0];
  if (count == 0) return;
  compare(value, cases[2 + value % count], cases[1] / 8);
}
}
