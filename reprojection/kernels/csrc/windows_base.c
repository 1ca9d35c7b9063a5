/* Window kernels compiled for any CPU of the architecture. */
#include "common.h"

#define TYPES BASE_TYPES
#include "windows_each.h"

int windows_base(const Job *job, int32_t pixel_type);

int windows_base(const Job *job, int32_t pixel_type) {
    return warp_windows(job, pixel_type);
}
