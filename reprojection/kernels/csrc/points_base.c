/* Point kernels compiled for any CPU of the architecture. */
#include "common.h"

#define TYPES BASE_TYPES
#include "points_each.h"

const PixelType *points_base(int32_t pixel_type) {
    FIND_TYPE
}
