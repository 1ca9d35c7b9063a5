/* What every kernel shares: exported names and run-time choice of the instruction set. */
#ifndef SWATHMILL_COMMON_H
#define SWATHMILL_COMMON_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* One build runs on any CPU of the architecture and uses the widest vectors it finds there: code
   that the compiler vectorises is cloned, code in the compiler's own vectors is compiled once per
   instruction set. Sanitizers cannot resolve clones at load time, but choose between files. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    defined(__linux__) && !defined(SWATHMILL_BASELINE)
#define WIDER_VECTORS 1
#else
#define WIDER_VECTORS 0
#endif
#if WIDER_VECTORS && !defined(SWATHMILL_NO_CLONES)
#define CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define CLONES
#endif

enum { BASE, AVX2, AVX512 };

/* The widest instruction set of this CPU that kernels are compiled for. */
static inline int instruction_set(void) {
#if WIDER_VECTORS
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return AVX512;
    if (__builtin_cpu_supports("avx2")) return AVX2;
#endif
    return BASE;
}

#endif
