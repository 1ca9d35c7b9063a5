/* The window kernels for the CPU at hand. */
#include "job.h"

int windows_base(const Job *job, int32_t pixel_type);
int windows_avx2(const Job *job, int32_t pixel_type);

/* Warp the blocks of one chunk that are made by window; 0, -1 without memory, -2 for a pixel type
   that is not known. */
EXPORT int32_t swathmill_warp_windows(const Job *job, int32_t pixel_type) {
#if WIDER_VECTORS
    if (instruction_set() != BASE) {
        int done = windows_avx2(job, pixel_type);
        if (done != -2) return done;
    }
#endif
    return windows_base(job, pixel_type);
}
