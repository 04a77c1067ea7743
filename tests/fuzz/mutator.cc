#include "mutator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace shoal::fuzz {
namespace {

constexpr std::array<std::size_t, 4> kWidths{1, 2, 4, 8};

std::span<const std::byte> bytes_of(const std::uint64_t& number, std::size_t width) {
  static_assert(std::endian::native == std::endian::little);
  return std::as_bytes(std::span(&number, 1)).first(width);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

bool is_digit(std::byte byte) { return std::isdigit(std::to_integer<unsigned char>(byte)) != 0; }

}  // namespace

/// One at which programs tend to go wrong.
std::uint64_t Mutator::telling_number() {
  const std::uint64_t power = std::uint64_t{1} << below(64);
  switch (below(4)) {
    case 0:
      return below(20);
    case 1:
      return 0 - static_cast<std::uint64_t>(below(20));
    case 2:
      return power - 1 + below(3);
    default:
      return ~power + below(3);
  }
}

std::span<const std::byte> Mutator::part_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return bytes;
  const std::size_t from = below(bytes.size());
  const std::size_t most = std::min<std::size_t>(bytes.size() - from, below(4) == 0 ? 4096 : 64);
  return bytes.subspan(from, 1 + below(most));
}

void Mutator::insert(Bytes& input, std::span<const std::byte> what) {
  const Bytes copy(what.begin(), what.end());  // it may be of the input itself
  const auto at = static_cast<std::ptrdiff_t>(below(input.size() + 1));
  input.insert(input.begin() + at, copy.begin(), copy.end());
}

void Mutator::overwrite(Bytes& input, std::span<const std::byte> what) {
  if (input.empty()) return insert(input, what);
  const Bytes copy(what.begin(), what.end());
  const std::size_t at = below(input.size());
  std::copy_n(copy.begin(), std::min(copy.size(), input.size() - at),
              input.begin() + static_cast<std::ptrdiff_t>(at));
}

void Mutator::write_number(Bytes& input) {
  const std::uint64_t number = telling_number();
  const auto bytes = bytes_of(number, kWidths[below(kWidths.size())]);
  below(4) == 0 ? insert(input, bytes) : overwrite(input, bytes);
}

void Mutator::add_to_number(Bytes& input) {
  const std::size_t width = kWidths[below(kWidths.size())];
  if (input.size() < width) return;
  std::byte* const at = input.data() + below(input.size() - width + 1);
  std::uint64_t number = 0;
  std::memcpy(&number, at, width);
  number += below(33) - std::uint64_t{16};
  std::memcpy(at, &number, width);
}

/// As what counts the bytes behind it, or some fewer or more.
void Mutator::write_length(Bytes& input) {
  const std::size_t width = kWidths[below(kWidths.size())];
  if (input.size() < width) return;
  const std::size_t at = below(input.size() - width + 1);
  const std::uint64_t number = input.size() - at - width + below(9) - std::uint64_t{4};
  std::memcpy(input.data() + at, &number, width);
}

/// Another number in the place of one that is written in digits.
void Mutator::write_digits(Bytes& input) {
  const auto from = input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1));
  const auto first = std::find_if(from, input.end(), is_digit);
  const auto last = std::find_if_not(first, input.end(), is_digit);
  if (first == last) return;
  std::string digits = below(3) == 0 ? std::to_string(static_cast<std::int64_t>(telling_number()))
                                     : std::to_string(telling_number());
  if (below(8) == 0) digits += below(2) == 0 ? "e300" : ".5";
  const auto bytes = bytes_of(digits);
  const auto at = input.erase(first, last);
  input.insert(at, bytes.begin(), bytes.end());
}

/// Writes one of two numbers that differed where the other is.
void Mutator::satisfy(Bytes& input, std::span<const Comparison> comparisons) {
  if (comparisons.empty()) return;
  const Comparison& chosen = comparisons[below(comparisons.size())];
  const auto [from, to] =
      below(4) == 0 ? std::pair(chosen.other, chosen.one) : std::pair(chosen.one, chosen.other);
  const auto old = bytes_of(from, chosen.bytes);
  const auto fresh = bytes_of(to, chosen.bytes);
  const auto begin = input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1));
  auto at = std::search(begin, input.end(), old.begin(), old.end());
  if (at == input.end()) at = std::search(input.begin(), input.end(), old.begin(), old.end());
  if (at == input.end()) return overwrite(input, fresh);
  std::ranges::copy(fresh, at);
}

void Mutator::change_once(Bytes& input, std::span<const std::byte> other,
                          std::span<const Comparison> comparisons) {
  switch (below(14)) {
    case 0:
      if (!input.empty()) input[below(input.size())] ^= std::byte{1} << static_cast<int>(below(8));
      return;
    case 1:
      if (!input.empty()) input[below(input.size())] = static_cast<std::byte>(below(256));
      return;
    case 2:
      return write_number(input);
    case 3:
      return add_to_number(input);
    case 4:
      return write_length(input);
    case 5:
      return write_digits(input);
    case 6: {
      if (input.empty()) return;
      const std::size_t from = below(input.size());
      const std::size_t count = 1 + below(std::min<std::size_t>(input.size() - from, 64));
      const auto first = input.begin() + static_cast<std::ptrdiff_t>(from);
      input.erase(first, first + static_cast<std::ptrdiff_t>(count));
      return;
    }
    case 7:
      return insert(input, part_of(input));
    case 8:
      return overwrite(input, part_of(input));
    case 9:
      return insert(input, part_of(other));
    case 10:
      return overwrite(input, part_of(other));
    case 11:
      if (words_.empty()) return write_number(input);
      return below(2) == 0 ? insert(input, words_[below(words_.size())])
                           : overwrite(input, words_[below(words_.size())]);
    case 12:
      if (below(4) == 0) input.resize(below(input.size() + 1));
      return;
    default:
      return satisfy(input, comparisons);
  }
}

Bytes Mutator::change(Bytes input, std::span<const std::byte> other,
                      std::span<const Comparison> comparisons) {
  for (std::size_t left = std::size_t{1} << below(4); left > 0; --left) {
    change_once(input, other, comparisons);
  }
  if (input.size() > max_bytes_) input.resize(max_bytes_);
  return input;
}

std::vector<Bytes> read_words(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("there is no dictionary " + path);
  std::vector<Bytes> words;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t begin = line.find('"'), end = line.rfind('"');
    if (begin == end) throw std::invalid_argument(path + ": not a word in quotes: " + line);
    Bytes word;
    for (std::size_t i = begin + 1; i < end; ++i) {
      if (line[i] != '\\') {
        word.push_back(static_cast<std::byte>(line[i]));
      } else if (line[++i] == 'x') {
        word.push_back(static_cast<std::byte>(std::stoi(line.substr(i + 1, 2), nullptr, 16)));
        i += 2;
      } else {
        word.push_back(static_cast<std::byte>(line[i]));
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace shoal::fuzz
