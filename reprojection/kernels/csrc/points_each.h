/* The point kernels of every pixel type, for the target set before this is included. */
/* These vectors gain nothing by the dearer optimisations, which take a minute. */
#pragma GCC optimize("O2", "no-tree-slp-vectorize")
#include "points.h"
#include "segments.h"

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
