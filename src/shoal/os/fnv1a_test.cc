#include "shoal/os/fnv1a.h"

#include <gtest/gtest.h>

#include <string_view>

namespace shoal::os {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Of the authors' table of test vectors.
TEST(Fnv1a, IsTheAuthors) {
  EXPECT_EQ(fnv1a({}), 0xcbf29ce484222325U);
  EXPECT_EQ(fnv1a(bytes_of("a")), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(fnv1a(bytes_of("foobar")), 0x85944171f73967e8U);
}

TEST(Fnv1a, OfPiecesIsThatOfTheWhole) {
  Fnv1a hash;
  hash.add(bytes_of("foo"));
  hash.add(bytes_of("bar"));
  EXPECT_EQ(hash.value(), fnv1a(bytes_of("foobar")));
}

}  // namespace
}  // namespace shoal::os
