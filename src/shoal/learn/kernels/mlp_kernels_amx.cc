#define SHOAL_KERNELS amx
#define SHOAL_KERNELS_NAME "amx"
#define SHOAL_VECTOR_FLOATS 16
#define SHOAL_TILE_ROWS 14
#define SHOAL_TILE_VECTORS 2
#define SHOAL_MULTIPLIES_BFLOAT16
#define SHOAL_MULTIPLIES_TILES
#include "shoal/learn/kernels/mlp_kernels_body.h"
