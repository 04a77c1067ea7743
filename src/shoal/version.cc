#include "shoal/version.h"

namespace shoal {

const char* version() { return SHOAL_VERSION; }

}  // namespace shoal
