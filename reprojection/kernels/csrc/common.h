/* What every kernel shares: exported names and run-time choice of the instruction set. */
#ifndef SWATHMILL_COMMON_H
#define SWATHMILL_COMMON_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { BASE, AVX2, AVX512 };

/* One build runs on any CPU of the architecture and uses the widest vectors it finds there: code
   that the compiler vectorises is cloned, code in the compiler's own vectors is compiled once per
   instruction set. Sanitizers cannot resolve clones at load time, but choose between files.

   SWATHMILL_FOR is the number of one instruction set: then all is compiled once, for CPUs that have
   it. That takes half the time, and the same code runs as in a build for any CPU. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define MANY_SETS 1
#else
#define MANY_SETS 0
#endif
#if !defined(SWATHMILL_FOR)
#define MADE_FOR (-1)
#elif MANY_SETS
#define MADE_FOR SWATHMILL_FOR
#else
#define MADE_FOR 0 /* other compilers make the baseline alone, whatever is asked for */
#endif
#define WIDER_VECTORS (MANY_SETS && MADE_FOR)
#if !WIDER_VECTORS || defined(SWATHMILL_NO_CLONES)
#define CLONES
#elif MADE_FOR > 0
#define CLONES __attribute__((target("avx2")))
#else
#define CLONES __attribute__((target_clones("avx2", "default")))
#endif

/* Pixel types that a file of one instruction set makes: integers of 8 and 16 bits, float, and those
   that are weighed in double. Wider vectors serve those that gain by them, so that a build for one
   instruction set needs each type in one file. */
#define SMALL_TYPES 1
#define FLOAT_TYPE 2
#define WIDE_TYPES 4
#if MADE_FOR > 0
#define BASE_TYPES WIDE_TYPES
#else
#define BASE_TYPES (SMALL_TYPES | FLOAT_TYPE | WIDE_TYPES)
#endif

/* The widest instruction set of this CPU that kernels are compiled for. */
static inline int widest_here(void) {
#if WIDER_VECTORS
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return AVX512;
    if (__builtin_cpu_supports("avx2")) return AVX2;
#endif
    return BASE;
}

/* The one that this process goes by. */
#if WIDER_VECTORS && MADE_FOR > 0
static inline int instruction_set(void) { return MADE_FOR; }
#else
int instruction_set(void);
#endif

#endif
