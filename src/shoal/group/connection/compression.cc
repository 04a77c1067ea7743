#include "shoal/group/connection/compression.h"

#include <dlfcn.h>

#include <type_traits>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

/// As lz4's header has them, unchanged since its first stable release.
struct Lz4 {
  int (*compress_bound)(int) = nullptr;
  int (*compress_default)(const char*, char*, int, int) = nullptr;
  int (*decompress_safe)(const char*, char*, int, int) = nullptr;

  Lz4() noexcept {
    void* library = ::dlopen("liblz4.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    find(compress_bound, "LZ4_compressBound");
    find(compress_default, "LZ4_compress_default");
    find(decompress_safe, "LZ4_decompress_safe");
  }
  bool complete() const noexcept {
    return compress_bound != nullptr && compress_default != nullptr && decompress_safe != nullptr;
  }
};

const Lz4& lz4() noexcept {
  static const Lz4 library;
  return library;
}

}  // namespace

bool can_compress() noexcept { return lz4().complete(); }

void compress(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  const int size = static_cast<int>(bytes.size());
  out.resize(static_cast<std::size_t>(lz4().compress_bound(size)));
  const int compressed = lz4().compress_default(reinterpret_cast<const char*>(bytes.data()),
                                                reinterpret_cast<char*>(out.data()), size,
                                                static_cast<int>(out.size()));
  SHOAL_CHECK(compressed > 0, "lz4 has room for its bound");
  out.resize(static_cast<std::size_t>(compressed));
}

void decompress(std::span<const std::byte> block, std::span<std::byte> out) {
  if (!can_compress())
    throw Error("frames came compressed, and there is no liblz4.so.1 here (Debian: liblz4-1)");
  const int made = lz4().decompress_safe(
      reinterpret_cast<const char*>(block.data()), reinterpret_cast<char*>(out.data()),
      static_cast<int>(block.size()), static_cast<int>(out.size()));
  if (made < 0 || static_cast<std::size_t>(made) != out.size())
    throw Error("frames came compressed by another way than ours, or were damaged on the way");
}

}  // namespace shoal::group
