/* Point kernels compiled for any CPU of the architecture. */
#include "points_each.h"

const PixelType *points_base(int32_t pixel_type) {
    FIND_TYPE
}
