/* Point kernels compiled for AVX2; chosen when the library runs. */
#include "common.h"

#if WIDER_VECTORS
#if MADE_FOR == 2
#define TYPES FLOAT_TYPE
#else
#define TYPES (SMALL_TYPES | FLOAT_TYPE)
#endif
#pragma GCC target("avx2")
#include "points_each.h"

const PixelType *points_avx2(int32_t pixel_type) {
    FIND_TYPE
}
#endif
