/* The version of the interface between the kernels and the Python that calls them. */
#include "common.h"

EXPORT int32_t swathmill_kernels_version(void) { return 8; }
