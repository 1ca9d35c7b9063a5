/* Window kernels compiled for AVX512; chosen when the library runs. */
#include "common.h"

#if WIDER_VECTORS
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2")
#include "windows_each.h"

int windows_avx512(const Job *job, int32_t pixel_type);

int windows_avx512(const Job *job, int32_t pixel_type) {
    return warp_windows(job, pixel_type);
}
#endif
