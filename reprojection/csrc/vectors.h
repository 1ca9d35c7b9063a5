/* Sixteen numbers at a time, in the compiler's own vectors.

   Included after the target of a file is set: the compiler splits vectors for the target of the
   function they are written in, before it inlines. */

typedef float Floats16 __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));

static const Floats16 U = {-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f,
                           0.5f,  1.5f,  2.5f,  3.5f,  4.5f,  5.5f,  6.5f,  7.5f};

/* The local coordinates of a segment's pixels around its whole base. */
INLINE Floats16 local16(double value, float slope, float bend, double *base) {
    double b = floor(value) - BIAS;
    *base = b;
    return (float)(value - b) + U * (slope + U * bend);
}

#if WIDER_VECTORS && (defined(__AVX512F__) || defined(__AVX2__))
#include <immintrin.h>
#endif

/* Four bytes at base + size * index. */
#if WIDER_VECTORS && defined(__AVX512F__)
#define GATHER4(base, index, size) \
    ((Ints)_mm512_i32gather_epi32((__m512i)(index), (const void *)(base), size))
#elif WIDER_VECTORS && defined(__AVX2__)
typedef union {
    Ints whole;
    __m256i half[2];
} Halves;
#define GATHER4(base, index, size)                                                     \
    ({                                                                                 \
        Halves at_ = {.whole = (index)}, got_;                                         \
        got_.half[0] = _mm256_i32gather_epi32((const int *)(base), at_.half[0], size); \
        got_.half[1] = _mm256_i32gather_epi32((const int *)(base), at_.half[1], size); \
        got_.whole;                                                                    \
    })
#else
INLINE Ints gather4(const void *base, Ints index, int size) {
    Ints out;
    for (int k = 0; k < SEGMENT; k++) {
        int32_t word;
        memcpy(&word, (const char *)base + (int64_t)index[k] * size, 4);
        out[k] = word;
    }
    return out;
}
#define GATHER4(base, index, size) gather4(base, index, size)
#endif
