#include "shoal/env/numpy_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>

namespace shoal::env::numpy {
namespace {

using Shape = std::span<const std::int64_t>;

constexpr int kPrecision = 8;         // numpy.get_printoptions()["precision"]
constexpr std::int64_t kEdge = 3;     // … ["edgeitems"]
constexpr std::int64_t kMany = 1000;  // … ["threshold"]

bool is_float(shm::DType dtype) {
  return dtype == shm::DType::kF16 || dtype == shm::DType::kF32 || dtype == shm::DType::kF64;
}

template <class T, class... Options>
std::string chars(T value, Options... options) {
  std::array<char, 512> buffer;
  return {buffer.data(),
          std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, options...).ptr};
}

/// The shortest digits that read back as `value`, with at most `precision` of them after the point
/// where it is given.
std::string digits(double value, shm::DType dtype, std::chars_format format,
                   std::optional<int> precision = {}) {
  std::string text =
      dtype == shm::DType::kF64 ? chars(value, format) : chars(static_cast<float>(value), format);
  const std::size_t point = text.find('.');
  const std::size_t end = std::min(text.find('e'), text.size());
  if (!precision || point == std::string::npos ||
      end - point - 1 <= static_cast<std::size_t>(*precision)) {
    return text;
  }
  text = chars(value, format, *precision);
  const std::size_t mantissa = std::min(text.find('e'), text.size());
  const std::size_t last = text.find_last_not_of('0', mantissa - 1);
  return text.erase(last + 1, mantissa - last - 1);
}

/// Where the elements of the array stand that numpy prints, in nested lists; "..." where it leaves
/// some out.
std::string nested(Shape shape, std::int64_t first, bool shorten,
                   const std::function<std::string(std::int64_t)>& element) {
  if (shape.empty()) return element(first);
  std::int64_t stride = 1;
  for (const std::int64_t size : shape.subspan(1)) stride *= size;
  std::string out = "[";
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    if (i > 0) out += ' ';
    if (shorten && shape[0] > 2 * kEdge && i == kEdge) {
      out += "... ";
      i = shape[0] - kEdge;
    }
    out += nested(shape.subspan(1), first + i * stride, shorten, element);
  }
  return out + "]";
}

std::int64_t size_of(Shape shape) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

/// How wide the parts of the numbers are, so that the points stand below one another.
struct Columns {
  bool scientific = false;
  std::size_t left = 0;   // sign and digits before the point
  std::size_t right = 0;  // digits after it
  std::size_t width() const { return left + 1 + right; }
};

struct Parts {
  std::string whole;     // with the sign
  std::string fraction;  // without the point
  std::string exponent;  // "e-05" or nothing
};

Parts parts(double value, shm::DType dtype, bool scientific) {
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const std::string text = digits(value, dtype, format, kPrecision);
  const std::size_t end = std::min(text.find('e'), text.size());
  const std::size_t point = std::min(text.find('.'), end);
  return {text.substr(0, point), point < end ? text.substr(point + 1, end - point - 1) : "",
          text.substr(end)};
}

Columns measure(const std::vector<double>& shown, shm::DType dtype) {
  Columns columns;
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const double value : shown) {
    if (!std::isfinite(value) || value == 0) continue;
    least = std::min(least, std::abs(value));
    most = std::max(most, std::abs(value));
  }
  columns.scientific = most > 0 && (most >= 1e8 || least < 1e-4 || most / least > 1000);
  std::size_t special = 0;
  std::size_t exponent = 0;
  for (const double value : shown) {
    if (!std::isfinite(value)) {
      special = std::max<std::size_t>(special, std::signbit(value) && std::isinf(value) ? 4 : 3);
      continue;
    }
    const Parts p = parts(value, dtype, columns.scientific);
    columns.left = std::max(columns.left, p.whole.size());
    columns.right = std::max(columns.right, p.fraction.size());
    exponent = std::max(exponent, p.exponent.size());
  }
  columns.right += exponent;
  if (special > columns.width()) columns.left = special - 1 - columns.right;
  return columns;
}

std::string element_text(double value, shm::DType dtype, const Columns& columns) {
  if (!std::isfinite(value)) return fmt::format("{:>{}}", chars(value), columns.width());
  const Parts p = parts(value, dtype, columns.scientific);
  if (columns.scientific) {
    const std::size_t fraction = columns.right - p.exponent.size();
    return fmt::format("{:>{}}.{:0<{}}{}", p.whole, columns.left, p.fraction, fraction, p.exponent);
  }
  return fmt::format("{:>{}}.{:<{}}", p.whole, columns.left, p.fraction, columns.right);
}

}  // namespace

std::string scalar_text(double value, shm::DType dtype) {
  if (dtype == shm::DType::kBool) return value != 0 ? "True" : "False";
  if (!is_float(dtype)) return fmt::format("{:.0f}", value);
  if (!std::isfinite(value)) return chars(value);
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-4 || size >= 1e16))
    return digits(value, dtype, std::chars_format::scientific);
  const std::string text = digits(value, dtype, std::chars_format::fixed);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string array_text(const std::vector<double>& values, const std::vector<std::int64_t>& shape,
                       shm::DType dtype) {
  const auto at = [&values](std::int64_t i) {
    return values.size() == 1 ? values[0] : values[static_cast<std::size_t>(i)];
  };
  if (!is_float(dtype)) {
    std::vector<std::int64_t> whole;
    for (std::int64_t i = 0; i < size_of(shape); ++i)
      whole.push_back(static_cast<std::int64_t>(at(i)));
    return array_text(whole, shape);
  }
  const bool shorten = size_of(shape) > kMany;
  std::vector<double> shown;
  nested(shape, 0, shorten, [&](std::int64_t i) {
    shown.push_back(at(i));
    return std::string();
  });
  const Columns columns = measure(shown, dtype);
  return nested(shape, 0, shorten,
                [&](std::int64_t i) { return element_text(at(i), dtype, columns); });
}

std::string array_text(const std::vector<std::int64_t>& values,
                       const std::vector<std::int64_t>& shape) {
  const bool shorten = size_of(shape) > kMany;
  std::size_t width = 0;
  const auto plain = [&values](std::int64_t i) {
    return std::to_string(values[static_cast<std::size_t>(i)]);
  };
  nested(shape, 0, shorten, [&](std::int64_t i) {
    width = std::max(width, plain(i).size());
    return std::string();
  });
  return nested(shape, 0, shorten,
                [&](std::int64_t i) { return fmt::format("{:>{}}", plain(i), width); });
}

}  // namespace shoal::env::numpy
