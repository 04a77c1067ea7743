#include "shoal/learn/network/mlp_kernels.h"

#include <vector>

namespace shoal::learn {

// Each in a source file of its own, compiled for its instruction set.
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
