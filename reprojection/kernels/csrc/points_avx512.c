/* Point kernels compiled for AVX512; chosen when the library runs. */
#include "common.h"

#if WIDER_VECTORS && MADE_FOR != 1
#define TYPES SMALL_TYPES
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2")
#include "points_each.h"

const PixelType *points_avx512(int32_t pixel_type) {
    FIND_TYPE
}
#endif
