/* Nearest, bilinear and cubic for one pixel type. Included once per type with
   T (pixel), W (float or double, in which pixels are weighed), T_MASK (an integer as wide as W),
   NAME(x), T_INTEGER, T_SMALL (an integer under 32 bits, whose neighbours are loaded together),
   T_UNSIGNED, T_WIDE (64 bits), and T_MIN, T_MAX. */

#include "pixel_impl.h"

/* Tap n of 8- or 16-bit pixels loaded side by side in a word. */
#define WORD_TAPS (4 / (int)sizeof(T))
#define T_BITS (8 * (int)sizeof(T))
#if T_SMALL && T_UNSIGNED
#define WORD_TAP(word, n) ((Ints)((Words)(word) << (32 - T_BITS * ((n) + 1)) >> (32 - T_BITS)))
#elif T_SMALL
#define WORD_TAP(word, n) ((word) << (32 - T_BITS * ((n) + 1)) >> (32 - T_BITS))
#endif

/* Sixteen pixels at a time, in the compiler's own vectors. A mask is all ones or zeros. */
typedef T NAME(Pixels) __attribute__((vector_size(SEGMENT * sizeof(T))));
typedef W NAME(Reals) __attribute__((vector_size(SEGMENT * sizeof(W))));
typedef T_MASK NAME(Mask) __attribute__((vector_size(SEGMENT * sizeof(W))));

#define PIXELS NAME(Pixels)
#define REALS NAME(Reals)
#define MASK NAME(Mask)
#define SELECT(mask, a, b) ((REALS)(((mask) & (MASK)(a)) | (~(mask) & (MASK)(b))))
#define KEEP(mask, a) ((REALS)((mask) & (MASK)(a)))

#if !T_SMALL
/* Pixels at offsets. */
INLINE PIXELS NAME(gather_pixels)(const T *p, Ints index) {
    PIXELS out;
#if T_WIDE
    for (int k = 0; k < SEGMENT; k++) out[k] = p[index[k]];
#else
    Ints word = GATHER4(p, index, 4);
    memcpy(&out, &word, sizeof out);
#endif
    return out;
}
#endif

INLINE MASK NAME(valid16)(REALS v, W fill) {
#if T_INTEGER
    return (MASK)(v != fill);
#else
    return (MASK)(v != fill) & (MASK)(v == v);
#endif
}

/* `blend` for sixteen pixels. */
INLINE REALS NAME(blend16)(REALS t00, REALS t01, REALS t10, REALS t11, REALS fx, REALS fy, W fill,
                           int nearest_rule, MASK *good) {
    const REALS one = (REALS){0} + (W)1;
    MASK m00 = NAME(valid16)(t00, fill), m01 = NAME(valid16)(t01, fill);
    MASK m10 = NAME(valid16)(t10, fill), m11 = NAME(valid16)(t11, fill);
    REALS gx = one - fx, gy = one - fy;
    REALS left = gy * KEEP(m00, t00) + fy * KEEP(m10, t10);
    REALS right = gy * KEEP(m01, t01) + fy * KEEP(m11, t11);
    REALS left_weight = KEEP(m00, gy) + KEEP(m10, fy);
    REALS right_weight = KEEP(m01, gy) + KEEP(m11, fy);
    REALS total = gx * left + fx * right;
    REALS weight = gx * left_weight + fx * right_weight;
    if (nearest_rule) {
        MASK to_right = (MASK)(fx >= (W)0.5), lower = (MASK)(fy >= (W)0.5);
        MASK upper_row = (to_right & m01) | (~to_right & m00);
        MASK lower_row = (to_right & m11) | (~to_right & m10);
        *good = (lower & lower_row) | (~lower & upper_row);
    } else {
        *good = (MASK)(weight > (W)0);
    }
    return total / weight;
}

/* `finish` for sixteen pixels; `clamp` where the value may leave the type's range. */
INLINE PIXELS NAME(finish16)(REALS value, MASK good, T fill, int clamp) {
    value = KEEP(good, value);
    const REALS fills = (REALS){0} + (W)fill;
#if T_INTEGER
    const W magic = sizeof(W) == 4 ? (W)12582912.0 : (W)6755399441055744.0;
    const REALS low = (REALS){0} + (W)T_MIN, high = (REALS){0} + (W)T_MAX;
    if (clamp) {
        value = SELECT((MASK)(value < low), low, value);
        value = SELECT((MASK)(value > high), high, value);
    }
    value = (value + magic) - magic;
    const REALS aside = (REALS){0} + (fill == (T)T_MIN ? (W)fill + 1 : (W)fill - 1);
#else
    (void)clamp;
    const T next = fill == (T)0 ? NAME(next)((T)0, (T)1) : NAME(next)(fill, (T)0);
    const REALS aside = (REALS){0} + (W)next;
#endif
    value = SELECT((MASK)(value == fills), aside, value);
    value = SELECT(good, value, fills);
#if T_INTEGER && T_SMALL
    return __builtin_convertvector(__builtin_convertvector(value, Ints), PIXELS);
#else
    return __builtin_convertvector(value, PIXELS);
#endif
}

INLINE void NAME(keys16)(REALS t, REALS w[4]) {
    const W half = (W)0.5, one = 1, two = 2, three = 3, four = 4, five = 5;
    w[0] = half * (t * ((two - t) * t - one));
    w[1] = half * ((three * t - five) * (t * t) + two);
    w[2] = half * (t * ((four - three * t) * t + one));
    w[3] = half * ((t - one) * (t * t));
}

/* Row and column offsets of a segment's pixels: where each tap or pixel starts, and fractions. */
typedef struct {
    int64_t origin; /* element of the view that index 0 stands for */
    int32_t lanes;  /* pixels from the first index on that hold all of them, or 0: too many */
    Ints index;
    REALS fx, fy;
} NAME(Taps);

INLINE void NAME(taps_of)(NAME(Taps) * taps, int rowwise, const Segments *segments, int n, Box box,
                          int64_t stride, float shift) {
    double base_x = 0, base_y = 0;
    Floats16 x = local16(segments->value[0][n], segments->slope[0][n], segments->bend[0][n],
                         &base_x) - shift;
    Ints ix = __builtin_convertvector(x, Ints);
    taps->fx = __builtin_convertvector(x - __builtin_convertvector(ix, Floats16), REALS);
    if (rowwise) {
        double at = segments->value[1][n] - (double)shift;
        base_y = floor(at);
        taps->fy = (REALS){0} + (W)(at - base_y);
        taps->index = ix;
        const float slope = segments->slope[0][n];
        taps->lanes = slope >= 0.0f && slope <= 1.6f ? (int32_t)(15.0f * slope) + 2 : 0;
    } else {
        taps->lanes = 0;
        Floats16 y = local16(segments->value[1][n], segments->slope[1][n], segments->bend[1][n],
                             &base_y) - shift;
        Ints iy = __builtin_convertvector(y, Ints);
        taps->fy = __builtin_convertvector(y - __builtin_convertvector(iy, Floats16), REALS);
        taps->index = iy * (int32_t)stride + ix;
    }
    taps->origin = ((int64_t)base_y - box.r0) * stride + ((int64_t)base_x - box.c0);
}

#if T_SMALL && ROW_WINDOWS
/* Along one source row: `lanes` pixels loaded at once as 16-bit lanes, others left alone. */
INLINE __m512i NAME(row_window)(const T *p, int lanes) {
    __mmask32 mask = (1u << lanes) - 1;
    if (sizeof(T) == 2) return _mm512_maskz_loadu_epi16(mask, p);
    return T_UNSIGNED ? _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, p))
                      : _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, p));
}

INLINE __m256i NAME(row_tap)(__m512i window, __m512i at) {
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(at, window));
}
#endif

INLINE PIXELS NAME(nearest16)(const T *view, const NAME(Taps) * taps) {
    const T *p = view + taps->origin;
#if T_SMALL && ROW_WINDOWS
    if (taps->lanes) {
        const int32_t start = taps->index[0];
        __m512i at = _mm512_castsi256_si512(_mm512_cvtepi32_epi16((__m512i)(taps->index - start)));
        __m256i got = NAME(row_tap)(NAME(row_window)(p + start, taps->lanes), at);
        PIXELS out;
        if (sizeof(T) == 2) {
            memcpy(&out, &got, sizeof out);
        } else {
            __m128i bytes = _mm256_cvtepi16_epi8(got);
            memcpy(&out, &bytes, sizeof out);
        }
        return out;
    }
#endif
#if T_SMALL
    return __builtin_convertvector(GATHER4(p, taps->index, sizeof(T)), PIXELS);
#else
    return NAME(gather_pixels)(p, taps->index);
#endif
}

/* `count` pixels (2 or 4) side by side at each of a segment's offsets. */
INLINE void NAME(load)(const T *p, const NAME(Taps) * taps, int count, REALS *t) {
    const Ints index = taps->index;
#if T_SMALL && ROW_WINDOWS
    if (taps->lanes) {
        const int32_t start = index[0];
        __m512i at = _mm512_castsi256_si512(_mm512_cvtepi32_epi16((__m512i)(index - start)));
        __m512i window = NAME(row_window)(p + start, taps->lanes + count - 1);
        for (int j = 0; j < count; j++) {
            __m256i got = NAME(row_tap)(window, _mm512_add_epi16(at, _mm512_set1_epi16((short)j)));
            __m512i wide = T_UNSIGNED ? _mm512_cvtepu16_epi32(got) : _mm512_cvtepi16_epi32(got);
            t[j] = __builtin_convertvector((Ints)wide, REALS);
        }
        return;
    }
#endif
#if T_SMALL
    for (int j = 0; j < count; j += WORD_TAPS) {
        Ints word = GATHER4(p + j, index, sizeof(T));
        for (int n = 0; n < WORD_TAPS && j + n < count; n++)
            t[j + n] = __builtin_convertvector(WORD_TAP(word, n), REALS);
    }
#else
    for (int j = 0; j < count; j++)
        t[j] = __builtin_convertvector(NAME(gather_pixels)(p + j, index), REALS);
#endif
}

INLINE PIXELS NAME(bilinear16)(const T *view, int64_t stride, const NAME(Taps) * taps, T fill,
                               int nearest_rule) {
    const T *p = view + taps->origin;
    REALS t[4];
    NAME(load)(p, taps, 2, t);
    NAME(load)(p + stride, taps, 2, t + 2);
    MASK good;
    REALS value = NAME(blend16)(t[0], t[1], t[2], t[3], taps->fx, taps->fy, (W)fill, nearest_rule,
                                &good);
    return NAME(finish16)(value, good, fill, 0);
}

INLINE PIXELS NAME(cubic16)(const T *view, int64_t stride, const NAME(Taps) * taps, T fill,
                            int nearest_rule) {
    const T *p = view + taps->origin - stride - 1;
    REALS across[4], down[4], columns[4], inner[4];
    NAME(keys16)(taps->fx, across);
    NAME(keys16)(taps->fy, down);
    MASK whole = (MASK){0} == (MASK){0};
    for (int i = 0; i < 4; i++) {
        REALS t[4];
        NAME(load)(p + i * stride, taps, 4, t);
        for (int j = 0; j < 4; j++) {
            whole &= NAME(valid16)(t[j], (W)fill);
            columns[j] = i ? columns[j] + down[i] * t[j] : down[i] * t[j];
        }
        if (i == 1 || i == 2) {
            inner[2 * (i - 1)] = t[1];
            inner[2 * (i - 1) + 1] = t[2];
        }
    }
    REALS total = across[0] * columns[0];
    for (int j = 1; j < 4; j++) total = total + across[j] * columns[j];
    MASK good;
    REALS plain = NAME(blend16)(inner[0], inner[1], inner[2], inner[3], taps->fx, taps->fy,
                                (W)fill, nearest_rule, &good);
    return NAME(finish16)(SELECT(whole, total, plain), good, fill, 1);
}

/* Segment rows [first, last), block columns [left, right) of one band. */
INLINE void NAME(segment_rows)(const Job *job, int64_t band, int64_t method,
                               const Segments *segments, Box box, const T *view, int64_t stride,
                               int64_t row0, int64_t col0, int first, int last, int left,
                               int right) {
    T fill = *(const T *)job->fill;
    float shift = method == NEAREST ? 0.0f : 0.5f;
    const int nearest_rule = (int)job->nearest_rule, rowwise = (int)job->rowwise;
    for (int i = first; i < last; i++) {
        T *out = (T *)job->out[band] + (row0 + i) * job->out_stride + col0;
        for (int s = left / SEGMENT; s * SEGMENT < right; s++) {
            int from = s * SEGMENT > left ? s * SEGMENT : left;
            int to = (s + 1) * SEGMENT < right ? (s + 1) * SEGMENT : right;
            NAME(Taps) taps;
            NAME(taps_of)(&taps, rowwise, segments, i * SEGMENTS + s, box, stride, shift);
            PIXELS part;
            if (method == NEAREST)
                part = NAME(nearest16)(view, &taps);
            else if (method == BILINEAR)
                part = NAME(bilinear16)(view, stride, &taps, fill, nearest_rule);
            else
                part = NAME(cubic16)(view, stride, &taps, fill, nearest_rule);
            if (to - from == SEGMENT)
                memcpy(out + from, &part, sizeof part);
            else
                memcpy(out + from, (const T *)&part + (from - s * SEGMENT),
                       (size_t)(to - from) * sizeof(T));
        }
    }
}

static void NAME(nearest_rows)(const Job *job, int64_t band, const Segments *segments,
                                      Box box, const T *view, int64_t stride, int64_t row0,
                                      int64_t col0, int first, int last, int left, int right) {
    NAME(segment_rows)(job, band, NEAREST, segments, box, view, stride, row0, col0, first, last,
                       left, right);
}

static void NAME(bilinear_rows)(const Job *job, int64_t band, const Segments *segments,
                                       Box box, const T *view, int64_t stride, int64_t row0,
                                       int64_t col0, int first, int last, int left, int right) {
    NAME(segment_rows)(job, band, BILINEAR, segments, box, view, stride, row0, col0, first, last,
                       left, right);
}

static void NAME(cubic_rows)(const Job *job, int64_t band, const Segments *segments,
                                    Box box, const T *view, int64_t stride, int64_t row0,
                                    int64_t col0, int first, int last, int left, int right) {
    NAME(segment_rows)(job, band, CUBIC, segments, box, view, stride, row0, col0, first, last,
                       left, right);
}

static void NAME(fill_rows)(const Job *job, int64_t band, int64_t row0, int64_t col0, int first,
                            int last, int left, int right) {
    T fill = *(const T *)job->fill;
    for (int i = first; i < last; i++) {
        T *out = (T *)job->out[band] + (row0 + i) * job->out_stride + col0;
        for (int j = left; j < right; j++) out[j] = fill;
    }
}

/* Every pixel at its float64 place (rows of `pitch` places), where segments do not serve. */
static void NAME(single_rows)(const Job *job, int64_t band, const double *places, int64_t pitch,
                              int64_t row0, int64_t col0, int first, int last, int left,
                              int right) {
    int64_t hint = 0;
    for (int i = first; i < last; i++) {
        T *out = (T *)job->out[band] + (row0 + i) * job->out_stride + col0;
        for (int j = left; j < right; j++) {
            const double *at = places + 2 * (i * pitch + j);
            out[j] = NAME(single)(job, job->method, band, at[0], at[1], &hint);
        }
    }
}

/* All bands of a part of one block by segments; 0, or -1 without memory. */
static int NAME(segment_block)(const Job *job, const Segments *segments, Box box, Scratch *scratch,
                               int64_t row0, int64_t col0, int first, int last, int left,
                               int right) {
    for (int64_t band = 0; band < job->bands; band++) {
        int64_t stride;
        const T *view = NAME(view)(job, band, box, scratch, &stride);
        if (!view && stride < 0) return -1;
        if (!view)
            NAME(fill_rows)(job, band, row0, col0, first, last, left, right);
        else if (job->method == NEAREST)
            NAME(nearest_rows)(job, band, segments, box, view, stride, row0, col0, first, last,
                               left, right);
        else if (job->method == BILINEAR)
            NAME(bilinear_rows)(job, band, segments, box, view, stride, row0, col0, first, last,
                                left, right);
        else
            NAME(cubic_rows)(job, band, segments, box, view, stride, row0, col0, first, last, left,
                             right);
    }
    return 0;
}

/* Ask for the first band's pixels of a box that lies in one tile, before they are needed. */
static void NAME(prefetch)(const Job *job, Box box) {
    for (int64_t n = 0; n < job->tiles; n++) {
        const Tile *t = job->tile + n;
        if (box.r0 < t->row || box.r1 > t->row + t->height || box.c0 < t->col ||
            box.c1 > t->col + t->width)
            continue;
        const T *row = (const T *)t->data + (box.r0 - t->row) * t->stride + (box.c0 - t->col);
        for (int64_t r = box.r0; r < box.r1; r++, row += t->stride)
            for (int64_t c = 0; c < box.c1 - box.c0; c += 64 / (int64_t)sizeof(T))
                __builtin_prefetch(row + c);
        return;
    }
}

static const PixelType NAME(type) = {NAME(segment_block), NAME(single_rows), NAME(fill_rows),
                                     NAME(prefetch), block_segments};

#undef IS_VALID
#undef WORD_TAPS
#undef T_BITS
#undef WORD_TAP
#undef PIXELS
#undef REALS
#undef MASK
#undef SELECT
#undef KEEP
