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

/* Pixels along one source row need no gather: a window of them is permuted. */
#if WIDER_VECTORS && defined(__AVX512BW__)
#define ROW_WINDOWS 1
#else
#define ROW_WINDOWS 0
#endif

/* The segments of a row of a block, eight at a time. */
typedef double Eight __attribute__((vector_size(64)));
typedef int64_t EightMask __attribute__((vector_size(64)));
typedef float EightFloats __attribute__((vector_size(32)));

INLINE Eight eight_at(const double *p) {
    Eight out;
    memcpy(&out, p, sizeof out);
    return out;
}

INLINE Eight chosen8(EightMask mask, Eight a, Eight b) {
    return (Eight)((mask & (EightMask)a) | (~mask & (EightMask)b));
}

/* Segments of rows [first, last) of a bicubic block from its 4 x 4 nodes, and a box that certainly
   holds every place of segments [left, right). */
static __attribute__((unused)) void block_segments(Segments *out, const Job *job, const double *nodes, int64_t node_stride,
                           int first, int last, Box *box, int left, int right) {
    Eight table[12], low[2], high[2];
    for (int k = 0; k < 12; k++) table[k] = eight_at(job->segment_weights + 8 * k);
    for (int channel = 0; channel < 2; channel++) {
        low[channel] = (Eight){0} + 1e300;
        high[channel] = (Eight){0} - 1e300;
    }
    for (int i = first; i < last; i++) {
        const double *w = job->centre_weights + 4 * i;
        Eight c = w[0] * eight_at(nodes);
        for (int k = 1; k < 4; k++) c = c + w[k] * eight_at(nodes + k * node_stride);
        for (int channel = 0; channel < 2; channel++) {
            Eight part[3];
            for (int n = 0; n < 3; n++) {
                part[n] = table[4 * n] * c[channel];
                for (int k = 1; k < 4; k++)
                    part[n] = part[n] + table[4 * n + k] * c[2 * k + channel];
            }
            EightFloats slope = __builtin_convertvector(part[1], EightFloats);
            EightFloats bend = __builtin_convertvector(part[2], EightFloats);
            memcpy(out->value[channel] + i * SEGMENTS, part, sizeof(Eight));
            memcpy(out->slope[channel] + i * SEGMENTS, &slope, sizeof slope);
            memcpy(out->bend[channel] + i * SEGMENTS, &bend, sizeof bend);
            EightMask upward = part[1] > 0, outward = part[2] > 0;
            Eight reach = 8.0 * chosen8(upward, part[1], -part[1]) +
                          64.0 * chosen8(outward, part[2], -part[2]);
            Eight under = part[0] - reach, over = part[0] + reach;
            low[channel] = chosen8(under < low[channel], under, low[channel]);
            high[channel] = chosen8(over > high[channel], over, high[channel]);
        }
    }
    double lowest[2], highest[2];
    for (int channel = 0; channel < 2; channel++) {
        lowest[channel] = low[channel][left];
        highest[channel] = high[channel][left];
        for (int s = left + 1; s < right; s++) {
            lowest[channel] = fmin(lowest[channel], low[channel][s]);
            highest[channel] = fmax(highest[channel], high[channel][s]);
        }
    }
    *box = (Box){(int64_t)floor(lowest[1]) - 1, (int64_t)floor(highest[1]) + 2,
                 (int64_t)floor(lowest[0]) - 1, (int64_t)floor(highest[0]) + 2};
}
