/* The point kernels of every pixel type, for the target set before this is included. */
#include "points.h"
#include "vectors.h"

#define IMPLEMENTATION "points_impl.h"
#include "each_type.h"

#define TYPE_CASE(number, name) \
    case number:                \
        return &type_##name;
#define FIND_TYPE              \
    switch (pixel_type) {      \
        ALL_TYPES(TYPE_CASE)   \
    default:                   \
        return NULL;           \
    }
