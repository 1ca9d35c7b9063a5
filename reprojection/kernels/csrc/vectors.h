/* Numbers side by side in the compiler's own vectors, as wide as the target has them.

   Included after the target of a file is set: the compiler splits vectors for the target of the
   function they are written in, before it inlines, and splits those wider than it badly. */
#ifndef SWATHMILL_VECTORS_H
#define SWATHMILL_VECTORS_H

#include "job.h"

/* Numbers of 32 bits in one vector. */
#if WIDER_VECTORS && defined(__AVX512BW__)
#define LANES 16
#elif WIDER_VECTORS && defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

/* The place in a segment of each of its pixels. */
static const float PLACES[SEGMENT] = {-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f,
                                      0.5f,  1.5f,  2.5f,  3.5f,  4.5f,  5.5f,  6.5f,  7.5f};

/* How a group's pixels lie: as many neighbours, the same but some one further right, or otherwise. */
enum { UNORDERED, IN_ORDER, SHIFTED };

static const int32_t LANE_NUMBERS[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Pixels of 8 or 16 bits from a stretch of one source row: STRETCH neighbours are loaded as 16
   bits each, and LANES of them picked. Much faster than a gather, and `Picks` serve all bands. */
#define STRETCH (2 * LANES)
#define HALVES 0
#if LANES > 4
#include <immintrin.h>
typedef int32_t Lanes __attribute__((vector_size(4 * LANES)));
typedef float Reals __attribute__((vector_size(4 * LANES)));

/* Rows whose LANES pixels lie in as many neighbours. */
#define NEIGHBOURS_STEP 0.999

#if LANES == 16
typedef __m512i Picks;
typedef __m256i Shorts;

INLINE Shorts shorts_of(Lanes numbers) { return _mm512_cvtepi32_epi16((__m512i)numbers); }

INLINE Picks picks_of(Lanes along) { return _mm512_castsi256_si512(shorts_of(along)); }

INLINE Shorts picked_of(__m512i stretch, Picks picks) {
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(picks, stretch));
}

INLINE Shorts picked16(const void *p, Picks picks) {
    return picked_of(_mm512_loadu_si512(p), picks);
}

INLINE Shorts picked8(const void *p, Picks picks, int is_unsigned) {
    __m256i bytes = _mm256_loadu_si256(p);
    return picked_of(is_unsigned ? _mm512_cvtepu8_epi16(bytes) : _mm512_cvtepi8_epi16(bytes),
                     picks);
}

INLINE Shorts loaded16(const void *p) { return _mm256_loadu_si256(p); }

INLINE Shorts loaded8(const void *p, int is_unsigned) {
    __m128i bytes = _mm_loadu_si128(p);
    return is_unsigned ? _mm256_cvtepu8_epi16(bytes) : _mm256_cvtepi8_epi16(bytes);
}

INLINE Reals permuted(Reals numbers, Lanes order) {
    return (Reals)_mm512_permutexvar_ps((__m512i)order, (__m512)numbers);
}

INLINE Shorts chosen_shorts(Shorts mask, Shorts a, Shorts b) {
    return _mm256_blendv_epi8(b, a, mask);
}

INLINE Reals chosen_reals(Lanes mask, Reals a, Reals b) {
    return (Reals)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)b, (__m512)a);
}

INLINE Shorts negated(Shorts a) { return _mm256_sub_epi16(_mm256_setzero_si256(), a); }

INLINE Lanes widened_shorts(Shorts a, int is_unsigned) {
    return (Lanes)(is_unsigned ? _mm512_cvtepu16_epi32(a) : _mm512_cvtepi16_epi32(a));
}

INLINE void store_shorts(void *p, Shorts a) { _mm256_storeu_si256(p, a); }

INLINE void store_bytes(void *p, Shorts a, int is_unsigned) {
    (void)is_unsigned;
    _mm_storeu_si128(p, _mm256_cvtepi16_epi8(a));
}

INLINE int all_zero(Lanes a) { return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) == 0; }
#else
typedef __m256i Picks;
typedef __m128i Shorts;

INLINE Shorts shorts_of(Lanes numbers) {
    return _mm_packs_epi32(_mm256_castsi256_si128((__m256i)numbers),
                           _mm256_extracti128_si256((__m256i)numbers, 1));
}

/* The bytes of each pixel in the stretch's first half, for the low lane, and in its second, for
   the high one; a set top bit picks nothing. */
INLINE Picks picks_of(Lanes along) {
    __m128i bytes = _mm_mullo_epi16(shorts_of(along), _mm_set1_epi16(0x0202));
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), bytes, 1);
    return _mm256_add_epi8(both, _mm256_inserti128_si256(_mm256_set1_epi16(0x7170),
                                                         _mm_set1_epi16((short)0xf1f0), 1));
}

INLINE Shorts picked_of(__m256i stretch, Picks picks) {
    __m256i halves = _mm256_shuffle_epi8(stretch, picks);
    return _mm_or_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

INLINE Shorts picked16(const void *p, Picks picks) {
    return picked_of(_mm256_loadu_si256(p), picks);
}

INLINE Shorts picked8(const void *p, Picks picks, int is_unsigned) {
    __m128i bytes = _mm_loadu_si128(p);
    return picked_of(is_unsigned ? _mm256_cvtepu8_epi16(bytes) : _mm256_cvtepi8_epi16(bytes),
                     picks);
}

INLINE Shorts loaded16(const void *p) { return _mm_loadu_si128(p); }

INLINE Shorts loaded8(const void *p, int is_unsigned) {
    __m128i bytes = _mm_loadl_epi64(p);
    return is_unsigned ? _mm_cvtepu8_epi16(bytes) : _mm_cvtepi8_epi16(bytes);
}

INLINE Reals permuted(Reals numbers, Lanes order) {
    return (Reals)_mm256_permutevar8x32_ps((__m256)numbers, (__m256i)order);
}

INLINE Shorts chosen_shorts(Shorts mask, Shorts a, Shorts b) { return _mm_blendv_epi8(b, a, mask); }

INLINE Reals chosen_reals(Lanes mask, Reals a, Reals b) {
    return (Reals)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
}

INLINE Shorts negated(Shorts a) { return _mm_sub_epi16(_mm_setzero_si128(), a); }

INLINE Lanes widened_shorts(Shorts a, int is_unsigned) {
    return (Lanes)(is_unsigned ? _mm256_cvtepu16_epi32(a) : _mm256_cvtepi16_epi32(a));
}

INLINE void store_shorts(void *p, Shorts a) { _mm_storeu_si128(p, a); }

INLINE void store_bytes(void *p, Shorts a, int is_unsigned) {
    _mm_storel_epi64(p, is_unsigned ? _mm_packus_epi16(a, a) : _mm_packs_epi16(a, a));
}

INLINE int all_zero(Lanes a) { return _mm256_testz_si256((__m256i)a, (__m256i)a); }
#endif

/* Segments along one source row with less than a source pixel per pixel, HALVES at a time: their
   sixteen pixels lie in as many neighbours, which one permutation picks from; without it their
   halves lie in eight pixels each, so that one shuffle makes sixteen. */
#undef HALVES
#define HALVES 4
#if LANES == 16
typedef struct {
    int32_t start[HALVES];
    __m256i picks[HALVES];
} Halves;

/* Of segments that begin with pixels `number`, 16 further on, and so on; starts count from `col`. */
INLINE void halves_of(Halves *halves, double start, double step, int64_t number, int64_t col) {
    const __m512 reach = _mm512_mul_ps(_mm512_loadu_ps(PLACES), _mm512_set1_ps((float)step));
    const __m256d half = _mm256_set1_pd((double)(number + SEGMENT / 2));
    const __m256d numbers =
        _mm256_add_pd(half, _mm256_setr_pd(0.0, SEGMENT, 2.0 * SEGMENT, 3.0 * SEGMENT));
    const __m256d middle =
        _mm256_add_pd(_mm256_set1_pd(start), _mm256_mul_pd(_mm256_set1_pd(step), numbers));
    const __m256d base = _mm256_sub_pd(_mm256_floor_pd(middle), _mm256_set1_pd(BIAS));
    const __m128 local = _mm256_cvtpd_ps(_mm256_sub_pd(middle, base));
    const __m128i from = _mm256_cvttpd_epi32(_mm256_sub_pd(base, _mm256_set1_pd((double)col)));
    const __m128i first = _mm_cvttps_epi32(
        _mm_add_ps(local, _mm_mul_ps(_mm_set1_ps(PLACES[0]), _mm_set1_ps((float)step))));
    float locals[HALVES];
    _mm_storeu_ps(locals, local);
    _mm_storeu_si128((void *)halves->start, _mm_add_epi32(from, first));
#pragma GCC unroll 4
    for (int s = 0; s < HALVES; s++) {
        const __m256i whole = _mm512_cvtepi32_epi16(
            _mm512_cvttps_epi32(_mm512_add_ps(_mm512_set1_ps(locals[s]), reach)));
        halves->picks[s] =
            _mm256_sub_epi16(whole, _mm256_broadcastw_epi16(_mm256_castsi256_si128(whole)));
    }
}

INLINE void halves16(void *out, const int16_t *p, const Halves *halves, int s) {
    const __m256i pixels = _mm256_loadu_si256((const void *)(p + halves->start[s]));
    _mm256_storeu_si256(out, _mm256_permutexvar_epi16(halves->picks[s], pixels));
}

INLINE void halves8(void *out, const uint8_t *p, const Halves *halves, int s) {
    const __m256i pixels =
        _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(p + halves->start[s])));
    _mm_storeu_si128(out,
                     _mm256_cvtepi16_epi8(_mm256_permutexvar_epi16(halves->picks[s], pixels)));
}
#else
typedef struct {
    int32_t start[2][HALVES];
    __m256i picks[HALVES];
} Halves;

/* Of segments that begin with pixels `number`, 16 further on, and so on; starts count from `col`. */
INLINE void halves_of(Halves *halves, double start, double step, int64_t number, int64_t col) {
    const __m256 slope = _mm256_set1_ps((float)step);
    const __m256 west = _mm256_mul_ps(_mm256_loadu2_m128(PLACES + 8, PLACES), slope);
    const __m256 east = _mm256_mul_ps(_mm256_loadu2_m128(PLACES + 12, PLACES + 4), slope);
    const __m256d half = _mm256_set1_pd((double)(number + SEGMENT / 2));
    const __m256d numbers =
        _mm256_add_pd(half, _mm256_setr_pd(0.0, SEGMENT, 2.0 * SEGMENT, 3.0 * SEGMENT));
    const __m256d middle =
        _mm256_add_pd(_mm256_set1_pd(start), _mm256_mul_pd(_mm256_set1_pd(step), numbers));
    const __m256d base = _mm256_sub_pd(_mm256_floor_pd(middle), _mm256_set1_pd(BIAS));
    const __m128 local = _mm256_cvtpd_ps(_mm256_sub_pd(middle, base));
    const __m128i from =
        _mm256_cvttpd_epi32(_mm256_sub_pd(base, _mm256_set1_pd((double)col)));
    for (int h = 0; h < 2; h++) {
        const __m128 reach =
            _mm_mul_ps(_mm_set1_ps(PLACES[h * SEGMENT / 2]), _mm256_castps256_ps128(slope));
        const __m128i first = _mm_cvttps_epi32(_mm_add_ps(local, reach));
        _mm_storeu_si128((void *)halves->start[h], _mm_add_epi32(from, first));
    }
    float locals[HALVES];
    _mm_storeu_ps(locals, local);
    __m256i bytes = _mm256_set1_epi16(0x0202);
    __asm__("" : "+x"(bytes)); /* the compiler takes shifts and sums for one multiplication */
#pragma GCC unroll 4
    for (int s = 0; s < HALVES; s++) {
        const __m256 centre = _mm256_broadcast_ss(locals + s);
        const __m256i both = _mm256_packs_epi32(_mm256_cvttps_epi32(_mm256_add_ps(centre, west)),
                                                _mm256_cvttps_epi32(_mm256_add_ps(centre, east)));
        const __m256i along =
            _mm256_sub_epi16(both, _mm256_shuffle_epi8(both, _mm256_set1_epi16(0x0100)));
        halves->picks[s] = _mm256_add_epi8(_mm256_mullo_epi16(along, bytes),
                                           _mm256_set1_epi16(0x0100));
    }
}

INLINE void halves16(void *out, const int16_t *p, const Halves *halves, int s) {
    const int16_t *west = p + halves->start[0][s], *east = p + halves->start[1][s];
    __m256i pixels = _mm256_castsi128_si256(_mm_loadu_si128((const void *)west));
    pixels = _mm256_inserti128_si256(pixels, _mm_loadu_si128((const void *)east), 1);
    _mm256_storeu_si256(out, _mm256_shuffle_epi8(pixels, halves->picks[s]));
}

INLINE void halves8(void *out, const uint8_t *p, const Halves *halves, int s) {
    __m128i pixels = _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)(p + halves->start[0][s])),
                                        _mm_loadl_epi64((const void *)(p + halves->start[1][s])));
    __m256i picked = _mm256_shuffle_epi8(_mm256_cvtepu8_epi16(pixels), halves->picks[s]);
    _mm_storeu_si128(out, _mm_packus_epi16(_mm256_castsi256_si128(picked),
                                           _mm256_extracti128_si256(picked, 1)));
}
#endif

/* A segment whose places run about a source pixel per pixel along two source rows or columns: each
   half is its neighbours in order, some of them one further right, or lower. */
#define SHIFTED_STEP 0.1f
#define ROWS_AHEAD 6 /* source rows below are asked for: the processor foresees only what follows in a row */
typedef struct {
    int64_t row[2], col[2];
    __m256i right, lower; /* which pixels are; masks of 16 bits */
} Shifts;

/* The least of a half's first and last of eight numbers, in all eight. */
INLINE __m256i least_ends(__m256i numbers) {
    return _mm256_min_epi16(_mm256_shuffle_epi8(numbers, _mm256_set1_epi16(0x0100)),
                            _mm256_shuffle_epi8(numbers, _mm256_set1_epi16(0x0f0e)));
}

/* Whole places of a segment, halves in order, each pixel's. */
INLINE __m256i whole_places(float local, float slope, float bend) {
    const __m256 u[2] = {_mm256_loadu2_m128(PLACES + 8, PLACES),
                         _mm256_loadu2_m128(PLACES + 12, PLACES + 4)};
    __m256i whole[2];
    for (int k = 0; k < 2; k++) {
        __m256 lean = _mm256_add_ps(_mm256_set1_ps(slope),
                                    _mm256_mul_ps(u[k], _mm256_set1_ps(bend)));
        whole[k] = _mm256_cvttps_epi32(
            _mm256_add_ps(_mm256_set1_ps(local), _mm256_mul_ps(u[k], lean)));
    }
    return _mm256_packs_epi32(whole[0], whole[1]);
}

/* 1, or 0 where the segment is not such a one. Values are local: counted from `row` and `col`. */
INLINE int shifts_of(Shifts *to, const float *local, const float *slope, const float *bend,
                     int64_t row, int64_t col) {
    const __m256i order = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    __m256i x = _mm256_sub_epi16(whole_places(local[0], slope[0], bend[0]), order);
    __m256i y = whole_places(local[1], slope[1], bend[1]);
    const __m256i left = least_ends(x), upper = least_ends(y);
    x = _mm256_sub_epi16(x, left);
    y = _mm256_sub_epi16(y, upper);
    to->col[0] = col + _mm256_extract_epi16(left, 0);
    to->col[1] = col + _mm256_extract_epi16(left, 8);
    to->row[0] = row + _mm256_extract_epi16(upper, 0);
    to->row[1] = row + _mm256_extract_epi16(upper, 8);
    to->right = _mm256_sub_epi16(_mm256_setzero_si256(), x);
    to->lower = _mm256_sub_epi16(_mm256_setzero_si256(), y);
    return _mm256_testz_si256(_mm256_or_si256(x, y), _mm256_set1_epi16(~1));
}

INLINE __m256i both_halves(const int16_t *first, const int16_t *second) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)first)),
                                   _mm_loadu_si128((const void *)second), 1);
}

INLINE void shifted16(void *out, const int16_t *view, int64_t stride, const Shifts *shifts) {
    const int16_t *p = view + shifts->row[0] * stride + shifts->col[0];
    const int16_t *q = view + shifts->row[1] * stride + shifts->col[1];
    __builtin_prefetch(p + ROWS_AHEAD * stride);
    __m256i upper = _mm256_blendv_epi8(both_halves(p, q), both_halves(p + 1, q + 1), shifts->right);
    __m256i under = _mm256_blendv_epi8(both_halves(p + stride, q + stride),
                                       both_halves(p + stride + 1, q + stride + 1), shifts->right);
    _mm256_storeu_si256(out, _mm256_blendv_epi8(upper, under, shifts->lower));
}

INLINE __m128i both_eights(const uint8_t *first, const uint8_t *second) {
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)first),
                              _mm_loadl_epi64((const void *)second));
}

INLINE __m128i bytes_of(__m256i masks) {
    return _mm_packs_epi16(_mm256_castsi256_si128(masks), _mm256_extracti128_si256(masks, 1));
}

INLINE void shifted8(void *out, const uint8_t *view, int64_t stride, const Shifts *shifts) {
    const uint8_t *p = view + shifts->row[0] * stride + shifts->col[0];
    const uint8_t *q = view + shifts->row[1] * stride + shifts->col[1];
    __builtin_prefetch(p + ROWS_AHEAD * stride);
    const __m128i right = bytes_of(shifts->right);
    __m128i upper = _mm_blendv_epi8(both_eights(p, q), both_eights(p + 1, q + 1), right);
    __m128i under = _mm_blendv_epi8(both_eights(p + stride, q + stride),
                                    both_eights(p + stride + 1, q + stride + 1), right);
    _mm_storeu_si128(out, _mm_blendv_epi8(upper, under, bytes_of(shifts->lower)));
}
#endif

/* Four numbers of 64 bits. */
typedef double Quad __attribute__((vector_size(32)));
typedef int64_t QuadMask __attribute__((vector_size(32)));
typedef float QuadFloats __attribute__((vector_size(16)));

INLINE Quad quad_at(const double *p) {
    Quad out;
    memcpy(&out, p, sizeof out);
    return out;
}

INLINE Quad floor4(Quad a) {
#if LANES > 4
    return (Quad)_mm256_floor_pd((__m256d)a);
#else
    return (Quad){floor(a[0]), floor(a[1]), floor(a[2]), floor(a[3])};
#endif
}

INLINE Quad chosen4(QuadMask mask, Quad a, Quad b) {
    return (Quad)((mask & (QuadMask)a) | (~mask & (QuadMask)b));
}

/* a where it is less than b, else b; and a where it is more. */
INLINE Quad least4(Quad a, Quad b) {
#if LANES > 4
    return (Quad)_mm256_min_pd((__m256d)a, (__m256d)b);
#else
    return chosen4(a < b, a, b);
#endif
}

INLINE Quad most4(Quad a, Quad b) {
#if LANES > 4
    return (Quad)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
    return chosen4(a > b, a, b);
#endif
}

INLINE Quad absolute4(Quad a) { return (Quad)((QuadMask)a & INT64_MAX); }

#endif
