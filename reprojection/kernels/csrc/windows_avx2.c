/* Window kernels compiled for AVX2; chosen when the library runs. */
#include "common.h"

#if WIDER_VECTORS
#define TYPES (SMALL_TYPES | FLOAT_TYPE)
#pragma GCC target("avx2")
#include "windows_each.h"

int windows_avx2(const Job *job, int32_t pixel_type);

int windows_avx2(const Job *job, int32_t pixel_type) {
    return warp_windows(job, pixel_type);
}
#endif
