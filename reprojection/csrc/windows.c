/* The window kernels for the CPU at hand. */
#include "job.h"

int windows_base(const Job *job, int32_t pixel_type);
int windows_avx2(const Job *job, int32_t pixel_type);
int windows_avx512(const Job *job, int32_t pixel_type);

/* Warp the blocks of one chunk that are made by window; 0, -1 without memory, -2 for a pixel type
   that is not known. */
EXPORT int32_t swathmill_warp_windows(const Job *job, int32_t pixel_type) {
    switch (instruction_set()) {
#if WIDER_VECTORS
    case AVX512:
        return windows_avx512(job, pixel_type);
    case AVX2:
        return windows_avx2(job, pixel_type);
#endif
    default:
        return windows_base(job, pixel_type);
    }
}
