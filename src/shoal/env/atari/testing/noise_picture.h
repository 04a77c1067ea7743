// Pictures that a test and a script in another language both make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::env {

/// As picture() in opencv_pictures.py.
inline std::vector<std::uint8_t> noise_picture(std::size_t values) {
  std::vector<std::uint8_t> picture(values);
  std::uint32_t state = 1;
  for (std::uint8_t& value : picture) {
    state = 1'664'525U * state + 1'013'904'223U;
    value = static_cast<std::uint8_t>(state >> 24);
  }
  return picture;
}

}  // namespace shoal::env
