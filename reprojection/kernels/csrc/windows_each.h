/* Window methods: a chunk of a target grid, all bands, by blocks of 128 x 128. Compiled for the
   target set before this is included. */
/* As for points. */
#pragma GCC optimize("O2", "no-tree-slp-vectorize")
#include "job.h"
#include "types.h"
#include "vectors.h"

/* Source pixels per target pixel beyond which kernels widen; GDAL's threshold. */
#define WIDENING (1.0 / 0.95)

typedef struct {
    double value;
    int64_t weight;
} Weighed;

/* Target pixels of a row that are looked at together, whether they have anything of a tile. */
enum { PIECE = 32, PIECES = BLOCK / PIECE };

typedef struct {
    double centres[BLOCK * BLOCK * 2];
    double corners[(BLOCK + 1) * (BLOCK + 1) * 2];
    Scratch row, pixels, shares, list;
} WindowWork;

typedef struct {
    int (*rows)(const Job *, const double *, int64_t, const double *, int64_t, int64_t, int64_t,
                int, int, int, int, WindowWork *);
    void (*fill)(const Job *, int64_t, int64_t, int, int, int, int);
} WindowType;

static Box common_box(Box a, Box b) {
    Box box = {greater(a.r0, b.r0), lesser(a.r1, b.r1), greater(a.c0, b.c0), lesser(a.c1, b.c1)};
    return box;
}

/* The box around all tiles of a band. */
static Box tiles_box(const Job *job, int64_t band) {
    const Tile *t = job->tile + band * job->tiles;
    Box box = {t->row, t->row + t->height, t->col, t->col + t->width};
    for (int64_t n = 1; n < job->tiles; n++) {
        box.r0 = lesser(box.r0, t[n].row);
        box.r1 = greater(box.r1, t[n].row + t[n].height);
        box.c0 = lesser(box.c0, t[n].col);
        box.c1 = greater(box.c1, t[n].col + t[n].width);
    }
    return box;
}

static int by_value(const void *a, const void *b) {
    double x = ((const Weighed *)a)->value, y = ((const Weighed *)b)->value;
    return (x > y) - (x < y);
}

static void sort_weighed(Weighed *list, int64_t count) {
    if (count > 64) {
        qsort(list, (size_t)count, sizeof(Weighed), by_value);
        return;
    }
    for (int64_t k = 1; k < count; k++) {
        Weighed one = list[k];
        int64_t m = k;
        for (; m > 0 && list[m - 1].value > one.value; m--) list[m] = list[m - 1];
        list[m] = one;
    }
}

static double clamped(double v, double low, double high) {
    return v < low ? low : v > high ? high : v;
}

/* For the row of pixels [row, row + 1): the quadrilateral's signed area right of each column edge.
   Differences of neighbours are the pixels' shares. Each side adds the integral of
   max(x - edge, 0) over its part in the row. */
static void row_shares(double *right_of, const double *q, double row, double col, int64_t width) {
    for (int64_t c = 0; c <= width; c++) right_of[c] = 0;
    for (int side = 0; side < 4; side++) {
        const double *a = q + 2 * side, *b = q + 2 * ((side + 1) & 3);
        double ya = clamped(a[1], row, row + 1), yb = clamped(b[1], row, row + 1);
        double dy = yb - ya;
        if (dy == 0) continue;
        double lean = (b[0] - a[0]) / (b[1] - a[1]);
        double xa = a[0] + (ya - a[1]) * lean, xb = a[0] + (yb - a[1]) * lean;
        double low = xa < xb ? xa : xb, high = xa < xb ? xb : xa, span = high - low;
        for (int64_t c = 0; c <= width; c++) {
            double edge = col + (double)c;
            double far = high > edge ? high - edge : 0.0, near = low > edge ? low - edge : 0.0;
            double part = span > 1e-12 ? (far - near) / span : high > edge ? 1.0 : 0.0;
            right_of[c] += dy * (part * (far + near) * 0.5);
        }
    }
}

static double kernel_weight(int64_t method, double t) {
    t = fabs(t);
    if (method == BILINEAR) return t < 1 ? 1 - t : 0;
    if (t <= 1) return (1.5 * t - 2.5) * (t * t) + 1;
    return t < 2 ? ((2.5 - 0.5 * t) * t - 4) * t + 2 : 0;
}

/* Columns once around the Earth at a row; not above 0 where columns do not run around it. */
static double turn_at(const Job *job, double row) {
    return job->turn_columns * cos(job->turn_angle + row * job->turn_step);
}

/* The range of places x (0) and y (1), as low and high; empty (low over high) without places.
   `lost` says whether one of them was no place. */
typedef struct {
    double low[2], high[2];
    int lost;
} Range;

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }

static void widen_range(Range *range, const double *places, int64_t count) {
    Quad low = {range->low[0], range->low[1], range->low[0], range->low[1]};
    Quad high = {range->high[0], range->high[1], range->high[0], range->high[1]};
    QuadMask lost = {0};
    for (int64_t k = 0; k < count; k += 2) {
        /* Two places at a time; the last once more where they are odd. */
        const double *at = places + 2 * (k + 2 <= count ? k : count - 2);
        Quad v = count > 1 ? quad_at(at) : (Quad){places[0], places[1], places[0], places[1]};
        low = least4(v, low);
        high = most4(v, high);
        lost |= v != v;
    }
    for (int channel = 0; channel < 2; channel++) {
        range->low[channel] = least(low[channel], low[channel + 2]);
        range->high[channel] = most(high[channel], high[channel + 2]);
    }
    range->lost |= (lost[0] | lost[1] | lost[2] | lost[3]) != 0;
}

static Range empty_range(void) {
    Range range = {{HUGE_VAL, HUGE_VAL}, {-HUGE_VAL, -HUGE_VAL}, 0};
    return range;
}

static Range joint_range(Range a, Range b) {
    for (int channel = 0; channel < 2; channel++) {
        a.low[channel] = least(a.low[channel], b.low[channel]);
        a.high[channel] = most(a.high[channel], b.high[channel]);
    }
    a.lost |= b.lost;
    return a;
}

/* The range of a row of corners, of which `count` pixels have one more, and those of its pieces. */
static Range row_range(Range *pieces, const double *places, int count) {
    Range range = empty_range();
    for (int j = 0; j < count; j += PIECE) {
        Range *piece = pieces + j / PIECE;
        *piece = empty_range();
        widen_range(piece, places + 2 * j, lesser(PIECE, count - j) + 1);
        range = joint_range(range, *piece);
    }
    return range;
}

static double greatest_place(Range range) {
    return fmax(fmax(fabs(range.low[0]), fabs(range.high[0])),
                fmax(fabs(range.low[1]), fabs(range.high[1])));
}

/* The pixels of a range, within bounds; without rows or columns where there are none. */
static Box range_box(Range range, Box within) {
    Box none = {0, 0, 0, 0};
    if (!(range.low[0] <= range.high[0] && range.low[1] <= range.high[1])) return none;
    Box box = {(int64_t)clamped(floor(range.low[1]) - 1, -1e15, 1e15),
               (int64_t)clamped(floor(range.high[1]) + 2, -1e15, 1e15),
               (int64_t)clamped(floor(range.low[0]) - 1, -1e15, 1e15),
               (int64_t)clamped(floor(range.high[0]) + 2, -1e15, 1e15)};
    box = common_box(box, within);
    return box.r0 < box.r1 && box.c0 < box.c1 ? box : none;
}

/* Columns by which a corner certainly lies on its pixel's side of the antimeridian. */
static double half_turn(const Job *job, Range range) {
    if (!(job->turn_columns > 0) || range.low[1] > range.high[1]) return HUGE_VAL;
    /* Between the poles the turn is least at one end of a range of rows. */
    double least = fmin(turn_at(job, range.low[1]), turn_at(job, range.high[1]));
    double reach = fmax(fabs(job->turn_angle + range.low[1] * job->turn_step),
                        fabs(job->turn_angle + range.high[1] * job->turn_step));
    return reach < 1.57 && least > 0 ? 0.4999 * least : 0.0;
}

/* Whether nothing in a range is lost or across the antimeridian: corners need no care. */
static int is_plain(Range range, double half) {
    return !range.lost && range.high[0] - range.low[0] <= half && greatest_place(range) <= 1e9;
}

/* Corners that are no place become the centre; those across the antimeridian come back beside it.
   Returns 0 where the centre is no place. */
INLINE int prepare_corners(const Job *job, const double *at, double half, double *q) {
    if (!(fabs(at[0]) <= 1e9 && fabs(at[1]) <= 1e9)) return 0;
    for (int k = 0; k < 4; k++) {
        double *corner = q + 2 * k;
        if (fabs(corner[0] - at[0]) <= half && corner[1] == corner[1]) continue;
        if (corner[0] != corner[0] || corner[1] != corner[1]) {
            corner[0] = at[0];
            corner[1] = at[1];
        }
        if (job->turn_columns > 0) {
            double turn = turn_at(job, corner[1]);
            if (turn > 0 && fabs(corner[0] - at[0]) > 0.5 * turn)
                corner[0] += corner[0] > at[0] ? -turn : turn;
        }
    }
    return 1;
}

/* Source rows a target pixel is high, and source columns it is wide at one row. */
static void local_scale(const double *q, double *scale_x, double *scale_y) {
    double col_j = ((q[2] - q[0]) + (q[4] - q[6])) * 0.5, row_j = ((q[3] - q[1]) + (q[5] - q[7])) * 0.5;
    double col_i = ((q[6] - q[0]) + (q[4] - q[2])) * 0.5, row_i = ((q[7] - q[1]) + (q[5] - q[3])) * 0.5;
    *scale_y = sqrt(row_j * row_j + row_i * row_i);
    *scale_x = *scale_y > 0 ? fabs(col_j * row_i - col_i * row_j) / *scale_y : 1.0;
}

/* Eight whole numbers, and four of them as reals. */
typedef int32_t EightInts __attribute__((vector_size(32)));
typedef int32_t FourInts __attribute__((vector_size(16)));

INLINE Quad reals4(FourInts a) {
#if LANES > 4
    return (Quad)_mm256_cvtepi32_pd((__m128i)a);
#else
    return __builtin_convertvector(a, Quad);
#endif
}

INLINE Quad quad_of(EightInts eight, int half) {
    FourInts four;
#if LANES > 4
    four = (FourInts)(half ? _mm256_extracti128_si256((__m256i)eight, 1)
                           : _mm256_castsi256_si128((__m256i)eight));
#else
    memcpy(&four, (const char *)&eight + half * (int)sizeof four, sizeof four);
#endif
    return reals4(four);
}

/* GDAL's box between two corners, and the shares of its edge rows and columns. Where it is one row
   or one column, the first share counts. */
typedef struct {
    Box box;
    double first_row, last_row, first_col, last_col;
} Window;

INLINE Window window_between(const double *from, const double *to) {
    const Quad a = {from[0], from[1], -from[0], -from[1]}, b = {to[0], to[1], -to[0], -to[1]};
    const Quad low = least4(a, b), whole = floor4(low + 1e-10), share = 1.0 - (low - whole);
    const Box box = {(int64_t)whole[1], -(int64_t)whole[3], (int64_t)whole[0], -(int64_t)whole[2]};
    Window window = {box, share[1], share[3], share[0], share[2]};
    if (box.r1 <= box.r0 + 1) {
        window.box.r1 = box.r0 + 1;
        window.first_row = 1.0;
    }
    if (box.c1 <= box.c0 + 1) {
        window.box.c1 = box.c0 + 1;
        window.first_col = 1.0;
    }
    return window;
}

/* The shares of four columns from the k-th of a window. */
INLINE Quad column_shares(const Window *window, int64_t k) {
    const Quad last = (Quad){0} + (double)(window->box.c1 - window->box.c0 - 1);
    const Quad at = (Quad){0, 1, 2, 3} + (double)k;
    const Quad shares = chosen4(at < last, (Quad){0} + 1.0, (Quad){0});
    const Quad with_last = chosen4(at == last, (Quad){0} + window->last_col, shares);
    return chosen4(at == (Quad){0}, (Quad){0} + window->first_col, with_last);
}

/* Whole numbers as such. */
INLINE FourInts ints4(Quad a) {
#if LANES > 4
    return (FourInts)_mm256_cvttpd_epi32((__m256d)a);
#else
    return (FourInts){(int32_t)a[0], (int32_t)a[1], (int32_t)a[2], (int32_t)a[3]};
#endif
}

INLINE double sum4(Quad a) { return (a[0] + a[1]) + (a[2] + a[3]); }

/* `sum4` of two, each to its place. */
INLINE void sum4_of_both(double *first, double *second, Quad a, Quad b) {
#if LANES > 4
    const __m256d pairs = _mm256_hadd_pd((__m256d)a, (__m256d)b);
    const __m128d sums =
        _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
    _mm_storel_pd(first, sums);
    _mm_storeh_pd(second, sums);
#else
    *first = sum4(a);
    *second = sum4(b);
#endif
}

/* What is at hand, as the ends of windows are compared with it: first column and row, and what the
   last ones are, negated. Counted from the first. */
typedef struct {
    double origin[4];
    int32_t least[4];
} Held;

INLINE Held held_of(Box box) {
    const double col = (double)box.c0, row = (double)box.r0;
    Held held = {{col, row, -col, -row},
                 {0, 0, (int32_t)(box.c0 - box.c1), (int32_t)(box.r0 - box.r1)}};
    return held;
}

/* `Window`s of a piece in what is at hand, counted from its first pixel. Shares are of the first
   column and row and of the last; of one row or one column, the first counts. */
typedef struct {
    double share[4][PIECE];
    int32_t col[PIECE], row[PIECE], width[PIECE], height[PIECE];
    int32_t beyond[PIECE]; /* not 0 where a window is not all at hand */
} Narrow;

/* Columns and rows of four places. */
INLINE void places4(const double *places, Quad *cols, Quad *rows) {
#if LANES > 4
    const __m256d a = _mm256_loadu_pd(places), b = _mm256_loadu_pd(places + 4);
    *cols = (Quad)_mm256_permute4x64_pd(_mm256_unpacklo_pd(a, b), 0xd8);
    *rows = (Quad)_mm256_permute4x64_pd(_mm256_unpackhi_pd(a, b), 0xd8);
#else
    *cols = (Quad){places[0], places[2], places[4], places[6]};
    *rows = (Quad){places[1], places[3], places[5], places[7]};
#endif
}

/* Windows j to j + 3. */
INLINE void narrow_four(Narrow *to, int j, const double *from, const double *until,
                        const Held *held) {
    Quad a[4], b[4], whole[4], share[4];
    places4(from, a, a + 1);
    places4(until, b, b + 1);
    FourInts ends[4], beyond = {0};
    for (int n = 0; n < 4; n++) {
        if (n >= 2) {
            a[n] = -a[n - 2];
            b[n] = -b[n - 2];
        }
        const Quad low = least4(a[n], b[n]);
        whole[n] = floor4(low + 1e-10);
        share[n] = 1.0 - (low - whole[n]);
        ends[n] = ints4(whole[n] - held->origin[n]);
    }
    int32_t *const sizes[2] = {to->width + j, to->height + j};
    for (int n = 0; n < 2; n++) {
        const Quad one = (Quad){0} + 1.0, size = most4(-(whole[n] + whole[n + 2]), one);
        const FourInts count = ints4(size);
        share[n] = chosen4(size == one, one, share[n]);
        ends[n + 2] = -(ends[n] + count);
        memcpy(sizes[n], &count, sizeof count);
    }
    for (int n = 0; n < 4; n++) memcpy(to->share[n] + j, share + n, sizeof(Quad));
    for (int n = 0; n < 4; n++) beyond |= ends[n] < held->least[n];
    memcpy(to->col + j, ends, sizeof beyond);
    memcpy(to->row + j, ends + 1, sizeof beyond);
    memcpy(to->beyond + j, &beyond, sizeof beyond);
}

/* Windows between the upper corners of a piece and those of the row below it. */
INLINE void narrow_piece(Narrow *to, const double *upper, const double *lower, int count,
                         const Held *held) {
    int j = 0;
    for (; j + 4 <= count; j += 4)
        narrow_four(to, j, upper + 2 * j, lower + 2 * j + 2, held);
    if (j == count) return;
    double from[8], until[8];
    for (int k = 0; k < 4; k++) {
        const int last = (int)lesser(j + k, count - 1);
        memcpy(from + 2 * k, upper + 2 * last, 2 * sizeof(double));
        memcpy(until + 2 * k, lower + 2 * last + 2, 2 * sizeof(double));
    }
    narrow_four(to, j, from, until, held);
}

/* Shares of the columns of a window of up to four. */
INLINE Quad narrow_shares(const Narrow *windows, int j) {
    static const double inner[4][4] = {{0}, {0}, {0, 1}, {0, 1, 1}};
    static const int64_t is_last[4][4] = {{0}, {0, -1}, {0, 0, -1}, {0, 0, 0, -1}};
    const int n = windows->width[j] - 1;
    QuadMask last;
    memcpy(&last, is_last[n], sizeof last);
    const QuadMask first = {-1, 0, 0, 0};
    const Quad first_share = (Quad){0} + windows->share[0][j];
    const Quad last_share = (Quad){0} + windows->share[2][j];
    return (Quad)((QuadMask)quad_at(inner[n]) | (first & (QuadMask)first_share) |
                  (last & (QuadMask)last_share));
}

#define IMPLEMENTATION "windows_impl.h"
#include "each_type.h"

/* A range that certainly holds a block that is not listed: its bicubics keep within 1.57 times the
   range of their nodes. */
static Range block_range(const Job *job, int64_t i, int64_t j) {
    Range range = empty_range();
    if (job->kinds[i * job->across + j] == FINE_BLOCK) {
        const int64_t count = FINE_NODES * FINE_NODES;
        widen_range(&range, job->fine + job->fine_index[i * job->across + j] * count * 2, count);
    } else {
        for (int k = 0; k < 4; k++)
            widen_range(&range, job->nodes + 2 * ((i + k) * (job->across + 3) + j), 4);
    }
    for (int channel = 0; channel < 2; channel++) {
        double more = 0.3 * (range.high[channel] - range.low[channel]);
        range.low[channel] -= more;
        range.high[channel] += more;
    }
    return range;
}

static int is_off_tiles(const Job *job, Range range) {
    if (!(range.high[0] - range.low[0] <= half_turn(job, range))) return 0;
    for (int64_t band = 0; band < job->bands; band++)
        if (area(range_box(range, tiles_box(job, band)))) return 0;
    return 1;
}

/* The windows of what the chunk has of block (i, j), its n-th. */
static int block_windows(const Job *job, const WindowType *type, WindowWork *work, int64_t i,
                         int64_t j, int64_t n) {
    const int64_t row0 = i * BLOCK - job->number_row, col0 = j * BLOCK - job->number_col;
    const int64_t width = job->right - job->left;
    const int top = (int)greater(0, job->top - row0), bottom = (int)lesser(BLOCK, job->bottom - row0);
    const int west = (int)greater(0, job->left - col0), east = (int)lesser(BLOCK, job->right - col0);
    if (job->rowwise) {
        int64_t skip = (row0 - job->top) * width + (col0 - job->left);
        int64_t skip_corners = (row0 - job->top) * (width + 1) + (col0 - job->left);
        return type->rows(job, job->centres + 2 * skip, width, job->corners + 2 * skip_corners,
                          width + 1, row0, col0, top, bottom, west, east, work);
    }
    const int64_t down = i - job->block_row, across = j - job->block_col;
    if (job->kinds[down * job->across + across] == LISTED_BLOCK)
        return type->rows(job, job->listed[n], BLOCK, job->listed_edges[n], BLOCK + 1, row0, col0,
                          top, bottom, west, east, work);
    const Range range = block_range(job, down, across);
    if (job->method > CUBIC && is_off_tiles(job, range)) {
        type->fill(job, row0, col0, top, bottom, west, east);
        return 0;
    }
    const int corners_do = job->method == GDAL_AVERAGE && is_plain(range, half_turn(job, range));
    if (!corners_do) block_places(work->centres, job, down, across, 0, top, bottom);
    block_places(work->corners, job, down, across, 1, top, bottom + 1);
    return type->rows(job, corners_do ? NULL : work->centres, BLOCK, work->corners, BLOCK + 1, row0, col0, top, bottom,
                      west, east, work);
}

static int run(const Job *job, const WindowType *type) {
    WindowWork *work = malloc(sizeof(WindowWork));
    if (!work) return -1;
    work->row = work->pixels = work->shares = work->list = (Scratch){NULL, 0};
    int failed = 0;
    int64_t first = floor_div(job->number_row + job->top, BLOCK);
    int64_t last = floor_div(job->number_row + job->bottom - 1, BLOCK);
    int64_t left = floor_div(job->number_col + job->left, BLOCK);
    int64_t right = floor_div(job->number_col + job->right - 1, BLOCK);
    int64_t n = 0;
    for (int64_t i = first; i <= last && !failed; i++)
        for (int64_t j = left; j <= right && !failed; j++, n++)
            if (job->by_window[n]) failed = block_windows(job, type, work, i, j, n);
    free(work->row.data);
    free(work->pixels.data);
    free(work->shares.data);
    free(work->list.data);
    free(work);
    return failed;
}

static int warp_windows(const Job *job, int32_t pixel_type) {
    switch (pixel_type) {
#define TYPE_CASE(number, name) \
    case number:                \
        return run(job, &window_type_##name);
        ALL_TYPES(TYPE_CASE)
    default:
        return -2;
    }
}
