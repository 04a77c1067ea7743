#define SHOAL_KERNELS generic
#define SHOAL_KERNELS_NAME "generic"
#define SHOAL_VECTOR_FLOATS 4
#define SHOAL_TILE_ROWS 4
#define SHOAL_TILE_VECTORS 2
#include "shoal/learn/kernels/mlp_kernels_body.h"
