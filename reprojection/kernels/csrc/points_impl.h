/* Nearest, bilinear and cubic for one pixel type. Included once per type with
   T (pixel), W (float or double, in which pixels are weighed), T_MASK (an integer as wide as W),
   NAME(x), T_INTEGER, T_SMALL (an integer under 32 bits, whose neighbours are loaded together),
   T_UNSIGNED, T_WIDE (64 bits), and T_MIN, T_MAX.

   A row of a block is made in two steps: where its pixels lie, in groups of T_LANES, and then, band
   by band, what is there. */

#include "pixel_impl.h"

/* Tap n of 8- or 16-bit pixels loaded side by side in a word. */
#define WORD_TAPS (4 / (int)sizeof(T))
#define T_BITS (8 * (int)sizeof(T))
#if T_SMALL && T_UNSIGNED
#define WORD_TAP(word, n) ((INTS)((WORDS)(word) << (32 - T_BITS * ((n) + 1)) >> (32 - T_BITS)))
#elif T_SMALL
#define WORD_TAP(word, n) ((word) << (32 - T_BITS * ((n) + 1)) >> (32 - T_BITS))
#endif

#define T_PICKED (T_SMALL && LANES > 4)

/* Pixels side by side in one vector: those whose weights fill it. A mask is all ones or zeros. */
#define T_LANES ((int)(sizeof(W) == sizeof(float) || LANES == 4 ? LANES : LANES / 2))
typedef T NAME(Pixels) __attribute__((vector_size(T_LANES * sizeof(T))));
typedef W NAME(Reals) __attribute__((vector_size(T_LANES * sizeof(W))));
typedef T_MASK NAME(Mask) __attribute__((vector_size(T_LANES * sizeof(W))));
typedef float NAME(Floats) __attribute__((vector_size(T_LANES * 4)));
typedef int32_t NAME(Ints) __attribute__((vector_size(T_LANES * 4)));
typedef uint32_t NAME(Words) __attribute__((vector_size(T_LANES * 4)));

#define PIXELS NAME(Pixels)
#define REALS NAME(Reals)
#define MASK NAME(Mask)
#define FLOATS NAME(Floats)
#define INTS NAME(Ints)
#define WORDS NAME(Words)
#define GROUPS (BLOCK / T_LANES)
#define SELECT(mask, a, b) ((REALS)(((mask) & (MASK)(a)) | (~(mask) & (MASK)(b))))
#define KEEP(mask, a) ((REALS)((mask) & (MASK)(a)))

/* Where the groups of a row of a block lie in a view. */
typedef struct {
    int64_t row[GROUPS], col[GROUPS]; /* what `down` and `along` count from */
    INTS down[GROUPS], along[GROUPS];
    REALS fx[GROUPS], fy[GROUPS];
#if T_PICKED
    int rows[GROUPS]; /* source rows to pick a group from: 1, 2, or 0 to read pixel by pixel */
    Picks picks[GROUPS];
    Shorts lower[GROUPS]; /* which pixels lie in the second row */
#endif
} NAME(Groups);

/* One segment: its centre's value, slope and half bend, of column and row. A level one lies along
   one source row, by a line. */
typedef struct {
    double value[2];
    float slope[2], bend[2];
} NAME(Segment);

INLINE MASK NAME(valid16)(REALS v, W fill) {
#if T_INTEGER
    return (MASK)(v != fill);
#else
    return (MASK)(v != fill) & (MASK)(v == v);
#endif
}

/* `blend` for a group, of taps of which `valid` are. */
INLINE REALS NAME(blend16)(const REALS t[4], const MASK valid[4], REALS fx, REALS fy,
                           int nearest_rule, MASK *good) {
    const REALS one = (REALS){0} + (W)1;
    const MASK m00 = valid[0], m01 = valid[1], m10 = valid[2], m11 = valid[3];
    REALS gx = one - fx, gy = one - fy;
    REALS left = gy * KEEP(m00, t[0]) + fy * KEEP(m10, t[2]);
    REALS right = gy * KEEP(m01, t[1]) + fy * KEEP(m11, t[3]);
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

/* `finish` for a group; `clamp` where the value may leave the type's range. */
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
    return __builtin_convertvector(__builtin_convertvector(value, INTS), PIXELS);
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

/* Whole numbers of local coordinates, counted from the lesser end; adds that to *origin. */
INLINE INTS NAME(whole)(FLOATS x, int64_t *origin) {
    INTS number = __builtin_convertvector(x, INTS);
    int32_t first = number[0], last = number[T_LANES - 1];
    int32_t start = first < last ? first : last;
    *origin += start;
    return number - start;
}

INLINE REALS NAME(fraction)(FLOATS x) {
    return __builtin_convertvector(
        x - __builtin_convertvector(__builtin_convertvector(x, INTS), FLOATS), REALS);
}

/* The groups of one segment of a row. `shift` is 0 for nearest, else half a pixel; `safe` says that
   stretches may be loaded anywhere in the box. */
INLINE void NAME(locate)(NAME(Groups) * to, int s, NAME(Segment) at, Box box, float shift, int level,
                         int safe) {
    const double base_x = floor(at.value[0]) - BIAS;
    const float local_x = (float)(at.value[0] - base_x);
    const double level_y = at.value[1] - (double)shift;
    const double base_y = level ? floor(level_y) : floor(at.value[1]) - BIAS;
    const float local_y = (float)(at.value[1] - base_y);
    for (int k = 0; k < SEGMENT / T_LANES; k++) {
        int g = s * (SEGMENT / T_LANES) + k;
        FLOATS u;
        memcpy(&u, PLACES + k * T_LANES, sizeof u);
        int64_t col = (int64_t)base_x - box.c0, row = (int64_t)base_y - box.r0;
        FLOATS x = level ? local_x + u * at.slope[0] - shift
                         : local_x + u * (at.slope[0] + u * at.bend[0]) - shift;
        INTS along = NAME(whole)(x, &col), down = {0};
        if (level) {
            if (shift != 0.0f) to->fy[g] = (REALS){0} + (W)(level_y - base_y);
        } else {
            FLOATS y = local_y + u * (at.slope[1] + u * at.bend[1]) - shift;
            down = NAME(whole)(y, &row);
            if (shift != 0.0f) to->fy[g] = NAME(fraction)(y);
        }
        if (shift != 0.0f) to->fx[g] = NAME(fraction)(x);
        to->row[g] = row;
        to->col[g] = col;
        to->along[g] = along;
        to->down[g] = down;
#if T_PICKED
        int near = safe && all_zero((along & ~(STRETCH - 1)) | (down & ~1));
        to->rows[g] = near ? (level ? 1 : 2) : 0;
        to->picks[g] = picks_of(along);
        to->lower[g] = negated(shorts_of(down));
#else
        (void)safe;
#endif
    }
}

#if T_PICKED
INLINE Shorts NAME(picked)(const T *p, Picks picks) {
    return sizeof(T) == 2 ? picked16(p, picks) : picked8(p, picks, T_UNSIGNED);
}
#endif

/* Pixels of 32 bits and more, and words of smaller ones, at offsets. */
#if T_SMALL
INLINE INTS NAME(words)(const T *p, INTS index) {
#if LANES == 16
    return (INTS)_mm512_i32gather_epi32((__m512i)index, p, sizeof(T));
#else
    INTS out;
    for (int k = 0; k < T_LANES; k++) {
        int32_t word;
        memcpy(&word, p + index[k], 4);
        out[k] = word;
    }
    return out;
#endif
}
#else
INLINE PIXELS NAME(pixels)(const T *p, INTS index) {
    PIXELS out;
    for (int k = 0; k < T_LANES; k++) out[k] = p[index[k]];
    return out;
}
#endif

/* Taps of a group: `size` x `size` pixels, the first `before` ahead of where it lies. */
INLINE void NAME(taps)(const T *view, int64_t stride, const NAME(Groups) * groups, int g, int size,
                       int before, REALS *t) {
    const T *p = view + (groups->row[g] - before) * stride + groups->col[g] - before;
#if T_PICKED
    if (groups->rows[g]) {
        const Picks picks = groups->picks[g];
        const Shorts lower = groups->lower[g];
        for (int j = 0; j < size; j++) {
            Shorts upper = NAME(picked)(p + j, picks);
            for (int i = 0; i < size; i++) {
                Shorts tap = upper;
                if (groups->rows[g] == 2) {
                    upper = NAME(picked)(p + (i + 1) * stride + j, picks);
                    tap = chosen_shorts(lower, upper, tap);
                } else if (i + 1 < size) {
                    upper = NAME(picked)(p + (i + 1) * stride + j, picks);
                }
                t[i * size + j] =
                    __builtin_convertvector((INTS)widened_shorts(tap, T_UNSIGNED), REALS);
            }
        }
        return;
    }
#endif
    const INTS index = groups->down[g] * (int32_t)stride + groups->along[g];
    for (int i = 0; i < size; i++) {
#if T_SMALL
        for (int j = 0; j < size; j += WORD_TAPS) {
            INTS word = NAME(words)(p + i * stride + j, index);
            for (int n = 0; n < WORD_TAPS && j + n < size; n++)
                t[i * size + j + n] = __builtin_convertvector(WORD_TAP(word, n), REALS);
        }
#else
        for (int j = 0; j < size; j++)
            t[i * size + j] =
                __builtin_convertvector(NAME(pixels)(p + i * stride + j, index), REALS);
#endif
    }
}

INLINE void NAME(nearest16)(const T *view, int64_t stride, const NAME(Groups) * groups, int g,
                            T *out) {
    const T *p = view + groups->row[g] * stride + groups->col[g];
#if T_PICKED
    if (groups->rows[g]) {
        Shorts tap = NAME(picked)(p, groups->picks[g]);
        if (groups->rows[g] == 2)
            tap = chosen_shorts(groups->lower[g], NAME(picked)(p + stride, groups->picks[g]), tap);
        if (sizeof(T) == 2)
            store_shorts(out, tap);
        else
            store_bytes(out, tap, T_UNSIGNED);
        return;
    }
#endif
    const INTS index = groups->down[g] * (int32_t)stride + groups->along[g];
    for (int k = 0; k < T_LANES; k++) out[k] = p[index[k]];
}

INLINE PIXELS NAME(bilinear16)(const T *view, int64_t stride, const NAME(Groups) * groups, int g,
                               T fill, int nearest_rule) {
    REALS t[4];
    NAME(taps)(view, stride, groups, g, 2, 0, t);
    MASK good, valid[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) valid[n] = NAME(valid16)(t[n], (W)fill);
    REALS value = NAME(blend16)(t, valid, groups->fx[g], groups->fy[g], nearest_rule, &good);
    return NAME(finish16)(value, good, fill, 0);
}

INLINE PIXELS NAME(cubic16)(const T *view, int64_t stride, const NAME(Groups) * groups, int g,
                            T fill, int nearest_rule) {
    REALS t[16], across[4], down[4], columns[4];
    NAME(taps)(view, stride, groups, g, 4, 1, t);
    NAME(keys16)(groups->fx[g], across);
    NAME(keys16)(groups->fy[g], down);
    MASK whole = (MASK){0} == (MASK){0}, valid[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; n++) {
        valid[n] = NAME(valid16)(t[n], (W)fill);
        whole &= valid[n];
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        columns[j] = down[0] * t[j];
#pragma GCC unroll 4
        for (int i = 1; i < 4; i++) columns[j] = columns[j] + down[i] * t[4 * i + j];
    }
    REALS total = across[0] * columns[0];
#pragma GCC unroll 4
    for (int j = 1; j < 4; j++) total = total + across[j] * columns[j];
    const REALS inner[4] = {t[5], t[6], t[9], t[10]};
    const MASK inner_valid[4] = {valid[5], valid[6], valid[9], valid[10]};
    MASK good;
    REALS plain =
        NAME(blend16)(inner, inner_valid, groups->fx[g], groups->fy[g], nearest_rule, &good);
    return NAME(finish16)(SELECT(whole, total, plain), good, fill, 1);
}

/* Columns [left, right) of one row of a block; `out` is the row's column 0. */
INLINE void NAME(make_row)(int method, const NAME(Groups) * groups, const T *view, int64_t stride,
                           T *out, int left, int right, T fill, int nearest_rule) {
    for (int g = left / T_LANES; g * T_LANES < right; g++) {
        T part[T_LANES];
        int whole = g * T_LANES >= left && (g + 1) * T_LANES <= right;
        T *to = whole ? out + g * T_LANES : part;
        if (method == NEAREST) {
            NAME(nearest16)(view, stride, groups, g, to);
        } else {
            PIXELS made = method == BILINEAR
                              ? NAME(bilinear16)(view, stride, groups, g, fill, nearest_rule)
                              : NAME(cubic16)(view, stride, groups, g, fill, nearest_rule);
            memcpy(to, &made, sizeof made);
        }
        if (!whole)
            for (int k = 0; k < T_LANES; k++)
                if (g * T_LANES + k >= left && g * T_LANES + k < right)
                    out[g * T_LANES + k] = part[k];
    }
}

static void NAME(fill_rows)(const Job *job, int64_t band, int64_t row0, int64_t col0, int first,
                            int last, int left, int right) {
    T fill = *(const T *)job->fill;
    for (int i = first; i < last; i++) {
        T *out = (T *)job->out[band] + (row0 + i) * job->out_stride + col0;
        if (left < right) NAME(fill_run)(out + left, right - left, fill);
    }
}

/* One row of some bands, whose views are at hand, by one method: a function that parts of blocks and
   of row plans call, which compiles in half the time of two copies. */
INLINE void NAME(bands_by)(int method, const Job *job, const NAME(Groups) * groups,
                           const NAME(View) * views, int64_t first_band, int count, int64_t row,
                           int64_t col, int left, int right) {
    T fill = *(const T *)job->fill;
    const int nearest_rule = (int)job->nearest_rule;
    for (int n = 0; n < count; n++) {
        if (!views[n].data) continue;
        T *out = (T *)job->out[first_band + n] + row * job->out_stride + col;
        NAME(make_row)(method, groups, views[n].data, views[n].stride, out, left, right, fill,
                       nearest_rule);
    }
}

typedef void NAME(BandsRow)(const Job *, const NAME(Groups) *, const NAME(View) *, int64_t, int,
                            int64_t, int64_t, int, int);
#define BY_METHOD(name, method)                                                                  \
    static __attribute__((noinline)) void name(                                                  \
        const Job *job, const NAME(Groups) * groups, const NAME(View) * views,                   \
        int64_t first_band, int count, int64_t row, int64_t col, int left, int right) {          \
        NAME(bands_by)(method, job, groups, views, first_band, count, row, col, left, right);    \
    }
BY_METHOD(NAME(nearest_row), NEAREST)
BY_METHOD(NAME(bilinear_row), BILINEAR)
BY_METHOD(NAME(cubic_row), CUBIC)
#undef BY_METHOD

#if T_PICKED
/* Neighbours of two rows weighed by the share of the lower: sums of valid pixels, and of their
   shares, with a minus where the pixel of the nearer row is fill. */
INLINE void NAME(between_rows)(float *sums, float *shares, const T *upper, const T *lower,
                               int columns, float fy, T fill) {
    const REALS down = (REALS){0} + fy, up = (REALS){0} + (1.0f - fy);
    const MASK minus = (MASK){0} + INT32_MIN;
    for (int c = 0; c < columns; c += T_LANES) {
        REALS t[2];
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            const T *p = (n ? lower : upper) + c;
            Shorts pixels = sizeof(T) == 2 ? loaded16(p) : loaded8(p, T_UNSIGNED);
            t[n] = __builtin_convertvector((INTS)widened_shorts(pixels, T_UNSIGNED), REALS);
        }
        MASK above = NAME(valid16)(t[0], (W)fill), under = NAME(valid16)(t[1], (W)fill);
        REALS sum = up * KEEP(above, t[0]) + down * KEEP(under, t[1]);
        MASK share = (MASK)(KEEP(above, up) + KEEP(under, down));
        share |= ~(fy >= 0.5f ? under : above) & minus;
        memcpy(sums + c, &sum, sizeof sum);
        memcpy(shares + c, &share, sizeof share);
    }
}

/* Where the groups of a level row lie among its columns from `origin` on. */
typedef struct {
    int64_t origin;
    int columns, at[GROUPS];
    INTS order[GROUPS];
    REALS fx[GROUPS];
} NAME(Level);

INLINE void NAME(locate_level)(NAME(Level) * to, double start, double step, int64_t number_col,
                               int left, int right) {
    const float slope = (float)step;
    int g = left / SEGMENT * (SEGMENT / T_LANES);
    to->columns = 0;
    to->origin =
        (int64_t)floor(start + step * (double)(number_col + left / SEGMENT * SEGMENT) - 0.5) - 1;
    for (int s = left / SEGMENT; s * SEGMENT < right; s++) {
        const double middle = start + step * (double)(number_col + s * SEGMENT + SEGMENT / 2);
        const double base = floor(middle) - BIAS;
        const float local = (float)(middle - base);
        for (int k = 0; k < SEGMENT / T_LANES; k++, g++) {
            FLOATS u;
            memcpy(&u, PLACES + k * T_LANES, sizeof u);
            FLOATS x = local + u * slope - 0.5f;
            int64_t at = (int64_t)base - to->origin;
            to->order[g] = NAME(whole)(x, &at);
            to->at[g] = (int)at;
            to->columns = (int)at + T_LANES + 1;
            to->fx[g] = NAME(fraction)(x);
        }
    }
}

/* Bilinear of a group between columns whose rows are weighed. */
INLINE PIXELS NAME(between_columns)(const NAME(Level) * level, int g, const float *sums,
                                    const float *shares, T fill, int nearest_rule) {
    REALS t[4];
#pragma GCC unroll 2
    for (int n = 0; n < 2; n++) {
        memcpy(t + n, sums + level->at[g] + n, sizeof t[n]);
        memcpy(t + 2 + n, shares + level->at[g] + n, sizeof t[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) t[n] = (REALS)permuted((Reals)t[n], (Lanes)level->order[g]);
    const REALS fx = level->fx[g], gx = ((REALS){0} + 1.0f) - fx;
    const MASK number = (MASK){0} + INT32_MAX;
    REALS total = gx * t[0] + fx * t[1];
    REALS weight = gx * KEEP(number, t[2]) + fx * KEEP(number, t[3]);
    MASK near = (MASK)SELECT((MASK)(fx >= 0.5f), t[3], t[2]);
    MASK good = nearest_rule ? (MASK)(near >= 0) : (MASK)(weight > 0.0f);
    return NAME(finish16)(total / weight, good, fill, 0);
}

/* Bilinear pixels of one row of a row plan, as `halves_row`: rows are weighed once for all pixels
   between them. */
static void NAME(level_row)(const Job *job, int64_t span, Box box, const NAME(View) * views,
                            int64_t first_band, int count, int64_t row, int64_t col,
                            int64_t number_col, int left, int right) {
    const double level_y = job->rows[row] - 0.5, base_y = floor(level_y);
    const float fy = (float)(level_y - base_y);
    const T fill = *(const T *)job->fill;
    NAME(Level) level;
    float sums[BLOCK + 4 * LANES], shares[BLOCK + 4 * LANES];
    NAME(locate_level)(&level, job->span_at[span * job->height + row],
                       job->span_step[span * job->height + row], number_col, left, right);
    for (int n = 0; n < count; n++) {
        if (!views[n].data) continue;
        const int64_t stride = views[n].stride;
        const T *p = views[n].data + ((int64_t)base_y - box.r0) * stride + (level.origin - box.c0);
        T *out = (T *)job->out[first_band + n] + row * job->out_stride + col;
        NAME(between_rows)(sums, shares, p, p + stride, level.columns, fy, fill);
        for (int g = left / T_LANES; g * T_LANES < right; g++) {
            PIXELS made = NAME(between_columns)(&level, g, sums, shares, fill,
                                                (int)job->nearest_rule);
            int from = g * T_LANES;
            if (from >= left && from + T_LANES <= right)
                memcpy(out + from, &made, sizeof made);
            else
                for (int k = 0; k < T_LANES; k++)
                    if (from + k >= left && from + k < right) out[from + k] = made[k];
        }
    }
}
#endif

#if T_PICKED && HALVES
/* The segments of one group, all of them. */
INLINE void NAME(halves_group)(T *out, const T *p, const Halves *halves) {
#pragma GCC unroll 4
    for (int s = 0; s < HALVES; s++) {
        if (sizeof(T) == 2)
            halves16(out + s * SEGMENT, (const int16_t *)p, halves, s);
        else
            halves8(out + s * SEGMENT, (const uint8_t *)p, halves, s);
    }
}

/* Nearest pixels of one row of a part of a row plan, for all bands at hand. */
static void NAME(halves_row)(const Job *job, int64_t span, Box box, const NAME(View) * views,
                             int64_t first_band, int count, int64_t row, Part part) {
    enum { GROUP = HALVES * SEGMENT };
    const double start = job->span_at[span * job->height + row];
    const double step = job->span_step[span * job->height + row];
    const int64_t down = (int64_t)floor(job->rows[row]) - box.r0;
    const T *from[BANDS_AT_ONCE];
    T *out[BANDS_AT_ONCE];
    int bands = 0;
    for (int n = 0; n < count; n++) {
        if (!views[n].data) continue;
        from[bands] = views[n].data + down * views[n].stride;
        out[bands++] = (T *)job->out[first_band + n] + row * job->out_stride + part.col0;
    }
    for (int left = part.left / GROUP * GROUP; left < part.right; left += GROUP) {
        Halves halves;
        halves_of(&halves, start, step, part.number_col + left, box.c0);
        const int whole = left >= part.left && left + GROUP <= part.right;
        for (int n = 0; n < bands; n++) {
            T piece[GROUP];
            NAME(halves_group)(whole ? out[n] + left : piece, from[n], &halves);
            if (!whole)
                for (int k = 0; k < GROUP; k++)
                    if (left + k >= part.left && left + k < part.right) out[n][left + k] = piece[k];
        }
    }
}
#endif

#if T_PICKED
/* Nearest pixels of one row of a block, for all bands at hand, by segments that are shifted; 0
   where one is not. */
static int NAME(shifted_row)(const Job *job, const Segments *segments, int i, Box box,
                             const NAME(View) * views, int64_t first_band, int count, Part part) {
    Shifts shifts[SEGMENTS];
    int all = 1;
    for (int s = part.left / SEGMENT; s * SEGMENT < part.right; s++) {
        const int n = i * SEGMENTS + s;
        const double base[2] = {floor(segments->value[0][n]) - BIAS,
                                floor(segments->value[1][n]) - BIAS};
        const float local[2] = {(float)(segments->value[0][n] - base[0]),
                                (float)(segments->value[1][n] - base[1])};
        const float slope[2] = {segments->slope[0][n], segments->slope[1][n]};
        const float bend[2] = {segments->bend[0][n], segments->bend[1][n]};
        all &= shifts_of(shifts + s, local, slope, bend, (int64_t)base[1] - box.r0,
                         (int64_t)base[0] - box.c0);
    }
    if (!all) return 0;
    for (int n = 0; n < count; n++) {
        if (!views[n].data) continue;
        T *out = (T *)job->out[first_band + n] + (part.row0 + i) * job->out_stride + part.col0;
        for (int s = part.left / SEGMENT; s * SEGMENT < part.right; s++) {
            T piece[SEGMENT];
            int from = s * SEGMENT, whole = from >= part.left && from + SEGMENT <= part.right;
            T *to = whole ? out + from : piece;
            if (sizeof(T) == 2)
                shifted16(to, (const int16_t *)views[n].data, views[n].stride, shifts + s);
            else
                shifted8(to, (const uint8_t *)views[n].data, views[n].stride, shifts + s);
            if (!whole)
                for (int k = 0; k < SEGMENT; k++)
                    if (from + k >= part.left && from + k < part.right) out[from + k] = piece[k];
        }
    }
    return 1;
}

/* Whether a part's first segment is one that may be shifted. */
static int NAME(is_shifted)(const Segments *segments, Part part) {
    const int n = part.first * SEGMENTS + part.left / SEGMENT;
    return fabsf(segments->slope[0][n] - 1.0f) < SHIFTED_STEP &&
           fabsf(segments->slope[1][n]) < 1.5f * SHIFTED_STEP;
}
#endif

#if T_PICKED
#include "points_ordered.h"
#endif

/* A part of a block by its segments, or of a row plan (segments NULL) by the lines of its rows. */
INLINE void NAME(part_rows)(int method, NAME(BandsRow) bands_row, const Job *job, const Segments *segments, int64_t span,
                            Box box, const NAME(View) * views, int64_t first_band, int count,
                            Part part, int safe) {
    const float shift = method == NEAREST ? 0.0f : 0.5f;
    NAME(Groups) groups;
    if (segments) {
#if T_PICKED
        const int shifted = safe && NAME(is_shifted)(segments, part);
        if (shifted && method != NEAREST && NAME(ordered_room)(box)) {
            for (int n = 0; n < count; n++)
                if (views[n].data)
                    NAME(ordered_rows)(method, job, segments, box, views + n, first_band + n, part);
            return;
        }
#endif
        for (int i = part.first; i < part.last; i++) {
#if T_PICKED
            if (method == NEAREST && shifted &&
                NAME(shifted_row)(job, segments, i, box, views, first_band, count, part))
                continue;
#endif
            for (int s = part.left / SEGMENT; s * SEGMENT < part.right; s++) {
                int n = i * SEGMENTS + s;
                NAME(Segment) at = {{segments->value[0][n], segments->value[1][n]},
                                    {segments->slope[0][n], segments->slope[1][n]},
                                    {segments->bend[0][n], segments->bend[1][n]}};
                NAME(locate)(&groups, s, at, box, shift, 0, safe);
            }
            bands_row(job, &groups, views, first_band, count, part.row0 + i,
                            part.col0, part.left, part.right);
        }
        return;
    }
    for (int i = part.first; i < part.last; i++) {
        const int64_t row = part.row0 + i;
        const double start = job->span_at[span * job->height + row];
        const double step = job->span_step[span * job->height + row];
#if T_PICKED && HALVES
        if (method == NEAREST && safe && step > 0.0 && step <= NEIGHBOURS_STEP) {
            NAME(halves_row)(job, span, box, views, first_band, count, row, part);
            continue;
        }
#endif
        for (int base = part.left / BLOCK * BLOCK; base < part.right; base += BLOCK) {
            int left = base < part.left ? part.left - base : 0;
            int right = part.right - base < BLOCK ? part.right - base : BLOCK;
#if T_PICKED
            if (method == BILINEAR && safe && step > 0.0 && step <= NEIGHBOURS_STEP) {
                NAME(level_row)(job, span, box, views, first_band, count, row, part.col0 + base,
                                part.number_col + base, left, right);
                continue;
            }
#endif
            for (int s = left / SEGMENT; s * SEGMENT < right; s++) {
                int64_t middle = part.number_col + base + s * SEGMENT + SEGMENT / 2;
                NAME(Segment) at = {{start + step * (double)middle, job->rows[row]},
                                    {(float)step, 0.0f},
                                    {0.0f, 0.0f}};
                NAME(locate)(&groups, s, at, box, shift, 1, safe);
            }
            bands_row(job, &groups, views, first_band, count, row, part.col0 + base,
                            left, right);
        }
    }
}

#define BY_METHOD(name, method, row)                                                            \
    static void name(const Job *job, const Segments *segments, int64_t span, Box box,           \
                     const NAME(View) * views, int64_t first_band, int count, Part part,        \
                     int safe) {                                                                \
        NAME(part_rows)(method, row, job, segments, span, box, views, first_band, count, part,    \
                        safe);                                                                    \
    }
BY_METHOD(NAME(nearest_part), NEAREST, NAME(nearest_row))
BY_METHOD(NAME(bilinear_part), BILINEAR, NAME(bilinear_row))
BY_METHOD(NAME(cubic_part), CUBIC, NAME(cubic_row))
#undef BY_METHOD

/* All bands of a part; 0, or -1 without memory. */
static int NAME(part)(const Job *job, const Segments *segments, int64_t span, Box box,
                      Scratch *scratch, Part part) {
    for (int64_t first = 0; first < job->bands; first += BANDS_AT_ONCE) {
        const int count = (int)lesser(job->bands - first, BANDS_AT_ONCE);
        NAME(View) views[BANDS_AT_ONCE];
        int safe = 1;
        for (int n = 0; n < count; n++) {
            int found = NAME(view)(job, first + n, box, scratch + n, views + n);
            if (found < 0) return -1;
            if (!found)
                NAME(fill_rows)(job, first + n, part.row0, part.col0, part.first, part.last,
                                part.left, part.right);
            else
                safe &= (box.r1 - box.r0 - 1) * views[n].stride + (box.c1 - box.c0) + STRETCH <=
                        views[n].room;
        }
        if (job->method == NEAREST)
            NAME(nearest_part)(job, segments, span, box, views, first, count, part, safe);
        else if (job->method == BILINEAR)
            NAME(bilinear_part)(job, segments, span, box, views, first, count, part, safe);
        else
            NAME(cubic_part)(job, segments, span, box, views, first, count, part, safe);
    }
    return 0;
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

static const PixelType NAME(type) = {NAME(part), NAME(single_rows), NAME(fill_rows),
                                     block_segments};

#undef IS_VALID
#undef WORD_TAPS
#undef T_BITS
#undef WORD_TAP
#undef T_PICKED
#undef T_LANES
#undef PIXELS
#undef REALS
#undef MASK
#undef FLOATS
#undef INTS
#undef WORDS
#undef GROUPS
#undef SELECT
#undef KEEP
