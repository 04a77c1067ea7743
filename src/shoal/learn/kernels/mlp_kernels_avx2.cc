#define SHOAL_KERNELS avx2
#define SHOAL_KERNELS_NAME "avx2"
#define SHOAL_VECTOR_FLOATS 8
#define SHOAL_TILE_ROWS 6
#define SHOAL_TILE_VECTORS 2
#include "shoal/learn/kernels/mlp_kernels_body.h"
