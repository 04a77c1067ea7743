#define SHOAL_KERNELS avx512
#define SHOAL_KERNELS_NAME "avx512"
#define SHOAL_VECTOR_FLOATS 16
#define SHOAL_TILE_ROWS 14
#define SHOAL_TILE_VECTORS 2
#include "shoal/learn/kernels/mlp_kernels_body.h"
