#pragma once

namespace shoal {

/// The version of this library, "major.minor.patch".
const char* version();

}  // namespace shoal
