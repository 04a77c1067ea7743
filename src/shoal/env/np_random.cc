#include "shoal/env/np_random.h"

#include <sys/random.h>

#include <cstddef>
#include <limits>
#include <string>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

constexpr int kPoolWords = 4;

/// SeedSequence's hash: every word that passes through also stirs the multiplier of the next.
class Hash {
 public:
  Hash(std::uint32_t init, std::uint32_t multiplier) : key_(init), multiplier_(multiplier) {}

  std::uint32_t operator()(std::uint32_t word) noexcept {
    word ^= key_;
    key_ *= multiplier_;
    word *= key_;
    return word ^ (word >> 16);
  }

 private:
  std::uint32_t key_;
  std::uint32_t multiplier_;
};

std::uint32_t mix(std::uint32_t x, std::uint32_t y) noexcept {
  const std::uint32_t mixed = 0xCA01F9DDU * x - 0x4973F715U * y;
  return mixed ^ (mixed >> 16);
}

using Pool = std::array<std::uint32_t, kPoolWords>;

Pool pool_of(const std::array<std::uint32_t, 4>& entropy, int words) noexcept {
  Hash hash(0x43B0D7E5U, 0x931E8875U);
  Pool pool{};
  for (int i = 0; i < kPoolWords; ++i) {
    pool[static_cast<std::size_t>(i)] = hash(i < words ? entropy[static_cast<std::size_t>(i)] : 0);
  }
  for (std::size_t from = 0; from < kPoolWords; ++from) {
    for (std::size_t to = 0; to < kPoolWords; ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  return pool;
}

std::array<std::uint64_t, 4> generate(const Pool& pool) noexcept {
  Hash hash(0x8B51F9DDU, 0x58F38DEDU);
  std::array<std::uint64_t, 4> out{};
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint64_t word = hash(pool[i % kPoolWords]);
    out[i / 2] |= word << (32 * (i % 2));
  }
  return out;
}

}  // namespace

NpRandom::NpRandom() {
  std::array<std::uint32_t, 4> entropy{};
  if (getentropy(entropy.data(), sizeof(entropy)) != 0) {
    throw SystemError("read 16 bytes of entropy for an unseeded generator");
  }
  seed_with(entropy, 4);
}

void NpRandom::seed(std::uint64_t seed) {
  const auto high = static_cast<std::uint32_t>(seed >> 32);
  seed_with({static_cast<std::uint32_t>(seed), high}, high == 0 ? 1 : 2);
}

void NpRandom::seed_with(std::array<std::uint32_t, 4> entropy, int words) {
  const auto word = generate(pool_of(entropy, words));
  const U128 start = (U128{word[0]} << 64) | word[1];
  const U128 sequence = (U128{word[2]} << 64) | word[3];
  increment_ = (sequence << 1) | 1;
  state_ = (increment_ + start) * kMultiplier + increment_;
  kept_half_.reset();
}

std::int64_t NpRandom::integers(std::int64_t low, std::int64_t high) {
  if (low >= high) {
    throw InvalidArgument("NpRandom::integers: low " + std::to_string(low) + " is not below high " +
                          std::to_string(high));
  }
  // The width minus one fits 64 bits even for the whole range.
  const std::uint64_t last = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) - 1;
  const auto at = [low](std::uint64_t offset) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
  };
  if (last == 0) return low;
  if (last == std::numeric_limits<std::uint32_t>::max()) return at(next_u32());
  const std::uint64_t width = last + 1;
  if (last < std::numeric_limits<std::uint32_t>::max()) {
    const auto width32 = static_cast<std::uint32_t>(width);
    const std::uint32_t bias = (0U - width32) % width32;
    std::uint64_t product = std::uint64_t{next_u32()} * width;
    while (static_cast<std::uint32_t>(product) < bias) product = std::uint64_t{next_u32()} * width;
    return at(product >> 32);
  }
  if (last == std::numeric_limits<std::uint64_t>::max()) return at(next_u64());
  const std::uint64_t bias = (0U - width) % width;
  U128 product = U128{next_u64()} * width;
  while (static_cast<std::uint64_t>(product) < bias) product = U128{next_u64()} * width;
  return at(static_cast<std::uint64_t>(product >> 64));
}

}  // namespace shoal::env
