#include "shoal/learn/kernels/mlp_kernels.h"

#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace shoal::learn {

// Each in a source file of its own, compiled for its instruction set.
namespace amx {
extern const MlpKernels kKernels;
}
namespace avx512_bf16 {
extern const MlpKernels kKernels;
}
namespace avx512 {
extern const MlpKernels kKernels;
}
namespace avx2 {
extern const MlpKernels kKernels;
}
namespace generic {
extern const MlpKernels kKernels;
}

#if defined(__x86_64__)
namespace {

/// Whether the processor multiplies tiles of bfloat16, and the kernel lets this process do so: it is asked, for
/// tiles make what it saves of a thread larger. Children may, too.
bool may_use_tiles() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTilesOfBfloat16 = 1U << 22, kTiles = 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kTilesOfBfloat16) == 0 || (d & kTiles) == 0) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace
#endif

std::span<const MlpKernels> mlp_kernels() noexcept {
  static const std::vector<MlpKernels> available = [] {
    std::vector<MlpKernels> list;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      if (__builtin_cpu_supports("avx512bf16")) {
        if (may_use_tiles()) {
          list.push_back(amx::kKernels);
          list.back().bfloat16_is_faster = true;
        }
        list.push_back(avx512_bf16::kKernels);
        // Intel's have the instruction, too, but do half as much by it as in float32.
        list.back().bfloat16_is_faster = __builtin_cpu_is("amd");
      }
      list.push_back(avx512::kKernels);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      list.push_back(avx2::kKernels);
#endif
    list.push_back(generic::kKernels);
    return list;
  }();
  return available;
}

}  // namespace shoal::learn
