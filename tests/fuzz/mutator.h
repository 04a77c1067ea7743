// Makes inputs out of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "coverage.h"
#include "input.h"

namespace shoal::fuzz {

/// A value. The same seed, corpus and comparisons give the same inputs.
class Mutator {
 public:
  Mutator(std::uint64_t seed, std::size_t max_bytes, std::vector<Bytes> words)
      : random_(seed), max_bytes_(max_bytes), words_(std::move(words)) {}

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }

  /// A change of one, which may take a part of `other`; `comparisons`: that one like it was in.
  Bytes change(Bytes input, std::span<const std::byte> other,
               std::span<const Comparison> comparisons);

 private:
  void change_once(Bytes& input, std::span<const std::byte> other,
                   std::span<const Comparison> comparisons);
  void write_number(Bytes& input);
  void add_to_number(Bytes& input);
  void write_length(Bytes& input);
  void write_digits(Bytes& input);
  void satisfy(Bytes& input, std::span<const Comparison> comparisons);
  void insert(Bytes& input, std::span<const std::byte> what);
  void overwrite(Bytes& input, std::span<const std::byte> what);
  std::span<const std::byte> part_of(std::span<const std::byte> bytes);
  std::uint64_t telling_number();

  std::mt19937_64 random_;
  std::size_t max_bytes_;
  std::vector<Bytes> words_;
};

/// The words of a file of libFuzzer's form: lines `"text \x00 \\ \""`, with a name and `=` before it
/// or not, and `#` comments. Throws std::invalid_argument.
std::vector<Bytes> read_words(const std::string& path);

}  // namespace shoal::fuzz
