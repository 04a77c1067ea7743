#include "shoal/learn/kernels/mlp_kernels.h"

#include <vector>

namespace shoal::learn {

// Each in a source file of its own, compiled for its instruction set.
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

std::span<const MlpKernels> mlp_kernels() noexcept {
  static const std::vector<MlpKernels> available = [] {
    std::vector<MlpKernels> list;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      if (__builtin_cpu_supports("avx512bf16")) {
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
