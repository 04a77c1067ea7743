// Reading elements of any type as another, without a branch an element.
#pragma once

#include <cstddef>
#include <type_traits>

#include "shoal/os/error.h"
#include "shoal/shm/dtype.h"

namespace shoal::collect {

/// Calls `use` with a pointer of the element type that `data` holds. Half precision has no C++ type
/// here and is refused.
template <class Use>
void visit_elements(shm::DType dtype, const std::byte* data, Use&& use) {
  if (dtype == shm::DType::kF16)
    throw InvalidArgument("arrays of float16 are not supported here; make the space float32");
  shm::with_type_of(dtype, [&]<class T>(T) { use(reinterpret_cast<const T*>(data)); });
}

/// The same for writing.
template <class Use>
void visit_elements(shm::DType dtype, std::byte* data, Use&& use) {
  visit_elements(dtype, static_cast<const std::byte*>(data), [&](const auto* elements) {
    use(const_cast<std::remove_const_t<std::remove_pointer_t<decltype(elements)>>*>(elements));
  });
}

}  // namespace shoal::collect
