/* What the Python that calls the kernels asks of the library itself. */
#include "common.h"

/* The version of the interface between them: one more with each change of an exported function or
   of `Tile` and `Job`, so that no Python calls kernels of another one; a test holds it. Or 0 on a
   CPU without the instruction set that the kernels were compiled for. */
EXPORT int32_t swathmill_kernels_version(void) { return MADE_FOR <= widest_here() ? 9 : 0; }

static int limit = AVX512;

/* Go by no wider instruction set than this from now on, so that each can be tried. Returns the one
   that is gone by. */
EXPORT int32_t swathmill_kernels_limit(int32_t widest) {
    limit = widest;
    return instruction_set();
}

#if !(WIDER_VECTORS && MADE_FOR > 0)
int instruction_set(void) {
    const int here = widest_here();
    return here < limit ? here : limit;
}
#endif
