/* What every kernel shares: exported names and run-time choice of the instruction set. */
#ifndef SWATHMILL_COMMON_H
#define SWATHMILL_COMMON_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* One build runs on any CPU of the architecture and uses the widest vectors it finds there.
   Sanitizers and clang's older versions cannot resolve clones at load time. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    defined(__linux__) && !defined(SWATHMILL_NO_CLONES)
#define CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define CLONES
#endif

#endif
