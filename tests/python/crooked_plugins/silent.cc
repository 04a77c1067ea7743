// Has the header, and registers nothing.
#include "shoal/env/register_env.h"
