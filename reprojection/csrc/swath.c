/* Swath to grid: for each target point the nearest footprint centre on the sphere.
 *
 * The rule is in reprojection/swath.py, whose numpy version gives the same indices. Distances are
 * squared chords of the unit sphere in double precision, summed in one fixed order, so that every
 * machine, cell and thread count decides alike; ties go to the smallest index.
 *
 * A block of targets is seen along the axis through its middle. That view shortens distances and
 * never lengthens them, so a search by boxes of view coordinates misses nothing. Blocks of a scan by
 * 64 columns whose latitudes and longitudes are out of reach are not looked at; the rest are binned.
 */
#include "common.h"

#define BLOCK_COLS 64
#define BLOCK_ROWS_MAX 64
#define TILE 256 /* targets along the side of a block */
#define SPLIT_POINTS 400000 /* candidates beyond which a block of targets is halved */
#define LANES 4

typedef double Lane __attribute__((vector_size(32)));
typedef double LaneLoad __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t Mask __attribute__((vector_size(32)));

static const double DEGREE = 0.017453292519943295;
static const double ROUND = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */

/* Sine and cosine of an angle in degrees: exact reduction by quarter turns, then Taylor series,
 * whose first omitted term on [-pi/4, pi/4] is below 1e-16. */
static inline void sincos_degrees(double degrees, double *sine, double *cosine)
{
    double quarter = (degrees * (1.0 / 90.0) + ROUND) - ROUND;
    double r = (degrees - quarter * 90.0) * DEGREE;
    double r2 = r * r;
    double s = r * (1.0 + r2 * (-1.0 / 6.0 + r2 * (1.0 / 120.0 + r2 * (-1.0 / 5040.0 +
               r2 * (1.0 / 362880.0 + r2 * (-1.0 / 39916800.0 + r2 * (1.0 / 6227020800.0 +
               r2 * (-1.0 / 1307674368000.0))))))));
    double c = 1.0 + r2 * (-1.0 / 2.0 + r2 * (1.0 / 24.0 + r2 * (-1.0 / 720.0 +
               r2 * (1.0 / 40320.0 + r2 * (-1.0 / 3628800.0 + r2 * (1.0 / 479001600.0 +
               r2 * (-1.0 / 87178291200.0 + r2 * (1.0 / 20922789888000.0))))))));
    double turn = quarter - 4.0 * ((quarter * 0.25 + ROUND) - ROUND); /* -2..2 */
    double odd = fabs(turn) == 1.0 ? 1.0 : 0.0;
    double a = odd != 0.0 ? c : s;
    double b = odd != 0.0 ? s : c;
    *sine = (turn == -1.0 || fabs(turn) == 2.0) ? -a : a;
    *cosine = (turn == 1.0 || fabs(turn) == 2.0) ? -b : b;
}

/* Unit vectors of n points in degrees, or of n points of one latitude when `step` is 0.
 * NaN where latitude or longitude is NaN or outside [-90, 90] and [-360, 360]. */
EXPORT CLONES void sw_unit(const double *lat, const double *lon, int64_t step, int64_t n, double *x,
                    double *y, double *z)
{
    if (step == 0) {
        double sine, cosine;
        sincos_degrees(lat[0], &sine, &cosine);
        double bad = fabs(lat[0]) <= 90.0 ? 0.0 : NAN;
        for (int64_t i = 0; i < n; i++) {
            double s, c;
            sincos_degrees(lon[i], &s, &c);
            double miss = fabs(lon[i]) <= 360.0 ? bad : NAN;
            x[i] = cosine * c + miss;
            y[i] = cosine * s + miss;
            z[i] = sine + miss;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double s, c, sine, cosine;
        sincos_degrees(lat[i], &sine, &cosine);
        sincos_degrees(lon[i], &s, &c);
        double miss = (fabs(lat[i]) <= 90.0 ? 0.0 : NAN) + (fabs(lon[i]) <= 360.0 ? 0.0 : NAN);
        x[i] = cosine * c + miss;
        y[i] = cosine * s + miss;
        z[i] = sine + miss;
    }
}

/* Rows of a block: whole scans, at least 8 rows. */
EXPORT int64_t sw_block_rows(int64_t scan)
{
    int64_t rows = scan >= 8 ? scan : scan * (8 / scan);
    return rows > BLOCK_ROWS_MAX ? BLOCK_ROWS_MAX : rows;
}

/* For each block: smallest and largest latitude, smallest and largest longitude. */
EXPORT CLONES void sw_extents(const double *lat, const double *lon, int64_t rows, int64_t cols,
                       int64_t block_rows, double *extents)
{
    int64_t across = (cols + BLOCK_COLS - 1) / BLOCK_COLS;
    for (int64_t i0 = 0; i0 < rows; i0 += block_rows)
        for (int64_t b = 0; b < across; b++) {
            int64_t i1 = i0 + block_rows < rows ? i0 + block_rows : rows;
            int64_t j0 = b * BLOCK_COLS;
            int64_t n = j0 + BLOCK_COLS < cols ? BLOCK_COLS : cols - j0;
            double low[8], high[8], west[8], east[8];
            for (int k = 0; k < 8; k++) {
                low[k] = west[k] = INFINITY;
                high[k] = east[k] = -INFINITY;
            }
            for (int64_t i = i0; i < i1; i++) {
                const double *p = lat + i * cols + j0, *q = lon + i * cols + j0;
                int64_t j = 0;
                for (; j + 8 <= n; j += 8)
                    for (int k = 0; k < 8; k++) {
                        low[k] = p[j + k] < low[k] ? p[j + k] : low[k];
                        high[k] = p[j + k] > high[k] ? p[j + k] : high[k];
                        west[k] = q[j + k] < west[k] ? q[j + k] : west[k];
                        east[k] = q[j + k] > east[k] ? q[j + k] : east[k];
                    }
                for (; j < n; j++) {
                    low[0] = p[j] < low[0] ? p[j] : low[0];
                    high[0] = p[j] > high[0] ? p[j] : high[0];
                    west[0] = q[j] < west[0] ? q[j] : west[0];
                    east[0] = q[j] > east[0] ? q[j] : east[0];
                }
            }
            double *out = extents + ((i0 / block_rows) * across + b) * 4;
            out[0] = low[0], out[1] = high[0], out[2] = west[0], out[3] = east[0];
            for (int k = 1; k < 8; k++) {
                out[0] = low[k] < out[0] ? low[k] : out[0];
                out[1] = high[k] > out[1] ? high[k] : out[1];
                out[2] = west[k] < out[2] ? west[k] : out[2];
                out[3] = east[k] > out[3] ? east[k] : out[3];
            }
        }
}

typedef struct {
    const double *lat, *lon;
    int64_t rows, cols, scan;
    const uint8_t *candidate; /* NULL: every pixel may be found */
    const double *extents;
    double cap; /* largest radius, a chord of the unit sphere */
    int64_t block_rows, blocks_down, blocks_across;
} Swath;

typedef struct {
    const double *lat, *lon;
    int64_t lat_row, lat_col, lon_row, lon_col, width;
    const double *x, *y, *z; /* unit vectors, (height, width) */
} Targets;

typedef struct {
    double lat_low, lat_high, lon_mid, lon_half; /* what a block of targets reaches, in degrees */
    double lat_mid;
    int empty, wide;
} Reach;

typedef struct {
    int64_t capacity;
    double *u, *v, *x, *y, *z, *r2; /* candidates as found */
    double *bx, *by, *bz;           /* candidates by bin, LANES of padding behind */
    int32_t *id, *from;             /* index in the swath; by bin: place in the arrays above */
    int64_t starts_capacity, coarse_capacity;
    int32_t *starts;
    double *coarse, *bound;
} Scratch;

typedef struct {
    double u0, v0, size, per; /* per = 1 / size */
    int64_t across, down;
} Bins;

static double wrapped(double degrees)
{
    return degrees - 360.0 * floor((degrees + 180.0) / 360.0);
}

/* Widen [low, high] to n longitudes relative to `first`, in [-180, 180). */
CLONES static void widen(const double *lon, int64_t n, double first, double *low, double *high)
{
    double west = *low, east = *high;
    for (int64_t i = 0; i < n; i++) {
        double d = lon[i] - first;
        d = d >= 180.0 ? d - 360.0 : d;
        d = d < -180.0 ? d + 360.0 : d;
        west = d < west ? d : west;
        east = d > east ? d : east;
    }
    *low = west, *high = east;
}

CLONES static void widen_plain(const double *value, int64_t n, double *low, double *high)
{
    double least = *low, most = *high;
    for (int64_t i = 0; i < n; i++) {
        least = value[i] < least ? value[i] : least;
        most = value[i] > most ? value[i] : most;
    }
    *low = least, *high = most;
}

/* Targets outside [-90, 90] and [-180, 180] must be NaN already. */
static Reach reach_of(const Targets *t, int64_t r0, int64_t r1, int64_t c0, int64_t c1, double cap)
{
    Reach reach = {.empty = 1};
    double low = INFINITY, high = -INFINITY, west = INFINITY, east = -INFINITY, first = NAN;
    int64_t across = t->lon_col ? c1 - c0 : 1;
    for (int64_t r = r0; r < r1; r++) {
        const double *lon = t->lon + r * t->lon_row + c0 * t->lon_col;
        widen_plain(t->lat + r * t->lat_row + c0 * t->lat_col, t->lat_col ? c1 - c0 : 1, &low, &high);
        if (t->lon_row == 0 && r > r0)
            continue; /* every row has the same longitudes */
        for (int64_t i = 0; isnan(first) && i < across; i++)
            first = lon[i];
        widen(lon, across, first, &west, &east);
    }
    if (isnan(first) || !(low <= high))
        return reach;
    double angle = 2.0 * asin(cap < 1.0 ? cap / 2.0 : 0.5) / DEGREE * 1.000001 + 1e-7;
    double far = fmax(fabs(low), fabs(high));
    double margin = 360.0;
    if (far + angle < 89.9)
        margin = asin(sin(angle * DEGREE) / cos(far * DEGREE)) / DEGREE * 1.000001 + 1e-7;
    reach.empty = 0;
    reach.lat_mid = (low + high) / 2.0;
    reach.lat_low = low - angle;
    reach.lat_high = high + angle;
    reach.lon_mid = first + (west + east) / 2.0;
    reach.lon_half = (east - west) / 2.0 + margin;
    double nearest_equator = low * high <= 0.0 ? 0.0 : fmin(fabs(low), fabs(high));
    reach.wide = high - low > 60.0 || (east - west) * cos(nearest_equator * DEGREE) > 60.0;
    return reach;
}

static int reaches(const Reach *reach, const double *extent)
{
    if (!(extent[0] <= reach->lat_high && extent[1] >= reach->lat_low))
        return 0;
    double apart = fabs(wrapped((extent[2] + extent[3]) / 2.0 - reach->lon_mid));
    return apart <= (extent[3] - extent[2]) / 2.0 + reach->lon_half;
}

static int64_t count_within_reach(const Swath *s, const Reach *reach)
{
    int64_t blocks = 0;
    for (int64_t b = 0; b < s->blocks_down * s->blocks_across; b++)
        blocks += reaches(reach, s->extents + 4 * b);
    return blocks * s->block_rows * BLOCK_COLS;
}

static int grow(void *array, int64_t n, size_t size)
{
    void **held = array;
    void *made = realloc(*held, (size_t)n * size);
    if (made)
        *held = made;
    return made != NULL;
}

static int reserve_points(Scratch *k, int64_t n)
{
    if (n <= k->capacity)
        return 1;
    double **arrays[] = {&k->u, &k->v, &k->x, &k->y, &k->z, &k->r2, &k->bx, &k->by, &k->bz};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++)
        if (!grow(arrays[a], n + LANES, sizeof(double)))
            return 0;
    if (!grow(&k->id, n + LANES, sizeof(int32_t)) || !grow(&k->from, n + LANES, sizeof(int32_t)))
        return 0;
    k->capacity = n;
    return 1;
}

static void release(Scratch *k)
{
    void *arrays[] = {k->u, k->v, k->x, k->y, k->z, k->r2, k->bx, k->by, k->bz, k->id, k->from,
                      k->starts, k->coarse, k->bound};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++)
        free(arrays[a]);
}

typedef struct {
    double e1[3], e2[3], axis[3];
    double u_low, u_high, v_low, v_high;
} View;

#define WINDOW (BLOCK_COLS + 2)

/* Squared footprint radii of one line from the vectors around it: a quarter of the sum of the larger
 * squared spacing across and the larger along. */
CLONES static void line_radii(const double *x, const double *y, const double *z, int above,
                              int below, int64_t n, double cap2, double *r2)
{
    for (int64_t j = 1; j <= n; j++) {
        double across = -1.0, along = -1.0, dx, dy, dz, d;
        dx = x[j] - x[j - 1], dy = y[j] - y[j - 1], dz = z[j] - z[j - 1];
        d = dx * dx + dy * dy + dz * dz;
        across = d > across ? d : across;
        dx = x[j] - x[j + 1], dy = y[j] - y[j + 1], dz = z[j] - z[j + 1];
        d = dx * dx + dy * dy + dz * dz;
        across = d > across ? d : across;
        dx = x[j] - x[j - WINDOW], dy = y[j] - y[j - WINDOW], dz = z[j] - z[j - WINDOW];
        d = dx * dx + dy * dy + dz * dz;
        along = (above && d > along) ? d : along;
        dx = x[j] - x[j + WINDOW], dy = y[j] - y[j + WINDOW], dz = z[j] - z[j + WINDOW];
        d = dx * dx + dy * dy + dz * dz;
        along = (below && d > along) ? d : along;
        double a = across < 0.0 ? along : across;
        double b = along < 0.0 ? across : along;
        double sum = (a + b) * 0.25;
        sum = sum > cap2 ? cap2 : sum;
        r2[j] = sum < 0.0 ? 0.0 : sum;
    }
}

/* Append the candidates of one block that lie in view of the targets. */
static int64_t gather(const Swath *s, int64_t block, const View *w, Scratch *k, int64_t n)
{
    double x[(BLOCK_ROWS_MAX + 2) * WINDOW], y[(BLOCK_ROWS_MAX + 2) * WINDOW];
    double z[(BLOCK_ROWS_MAX + 2) * WINDOW], r2[WINDOW];
    int64_t i0 = block / s->blocks_across * s->block_rows;
    int64_t i1 = i0 + s->block_rows < s->rows ? i0 + s->block_rows : s->rows;
    int64_t j0 = block % s->blocks_across * BLOCK_COLS;
    int64_t cols = j0 + BLOCK_COLS < s->cols ? BLOCK_COLS : s->cols - j0;
    int64_t left = j0 > 0, right = j0 + cols < s->cols;
    int64_t top = i0, bottom = i1; /* lines beyond whole scans tell nothing of their footprints */
    if (s->scan == 1 || s->block_rows % s->scan != 0) {
        top = i0 > 0 ? i0 - 1 : 0;
        bottom = i1 < s->rows ? i1 + 1 : s->rows;
    }
    for (int64_t i = i0 - 1; i <= i1; i++) {
        double *row[3] = {x + (i - i0 + 1) * WINDOW, y + (i - i0 + 1) * WINDOW,
                          z + (i - i0 + 1) * WINDOW};
        if (i < top || i >= bottom) {
            for (int64_t j = 0; j < cols + 2; j++)
                row[0][j] = row[1][j] = row[2][j] = NAN;
            continue;
        }
        for (int c = 0; c < 3; c++)
            row[c][0] = row[c][cols + 1] = NAN;
        int64_t from = i * s->cols + j0 - left;
        sw_unit(s->lat + from, s->lon + from, 1, cols + left + right, row[0] + 1 - left,
                row[1] + 1 - left, row[2] + 1 - left);
    }
    double cap2 = s->cap * s->cap;
    for (int64_t i = i0; i < i1; i++) {
        int64_t at = (i - i0 + 1) * WINDOW;
        int above = s->scan == 1 || i % s->scan != 0;
        int below = s->scan == 1 || (i + 1) % s->scan != 0;
        line_radii(x + at, y + at, z + at, above, below, cols, cap2, r2);
        for (int64_t j = 1; j <= cols; j++) {
            double px = x[at + j], py = y[at + j], pz = z[at + j];
            double u = px * w->e1[0] + py * w->e1[1];
            double v = px * w->e2[0] + py * w->e2[1] + pz * w->e2[2];
            double front = px * w->axis[0] + py * w->axis[1] + pz * w->axis[2];
            int64_t id = i * s->cols + j0 + j - 1;
            int in = u >= w->u_low && u <= w->u_high && v >= w->v_low && v <= w->v_high && front > 0.0;
            if (s->candidate)
                in = in && s->candidate[id];
            k->u[n] = u, k->v[n] = v, k->x[n] = px, k->y[n] = py, k->z[n] = pz;
            k->r2[n] = r2[j], k->id[n] = (int32_t)id;
            n += in;
        }
    }
    return n;
}

static int64_t clamp(double value, int64_t last)
{
    return value <= 0.0 ? 0 : value >= (double)last ? last : (int64_t)value;
}

static Bins lay_bins(const View *w, double size)
{
    double wide = w->u_high - w->u_low, high = w->v_high - w->v_low;
    Bins g = {.u0 = w->u_low, .v0 = w->v_low, .size = size, .per = 1.0 / size};
    g.across = (int64_t)(wide * g.per) + 1;
    g.down = (int64_t)(high * g.per) + 1;
    return g;
}

/* Where some radii are much larger than most: the largest in each bin as wide as the largest of
 * all, and in the eight around it. So far must a target in that bin look. */
static int find_bounds(Scratch *k, int64_t n, const Bins *g, double usual)
{
    int64_t cells = g->across * g->down;
    if (cells > k->coarse_capacity) {
        if (!grow(&k->coarse, cells, sizeof(double)) || !grow(&k->bound, cells, sizeof(double)))
            return 0;
        k->coarse_capacity = cells;
    }
    for (int64_t c = 0; c < cells; c++)
        k->coarse[c] = usual * usual;
    for (int64_t p = 0; p < n; p++) {
        if (k->r2[p] <= usual * usual)
            continue;
        int64_t col = clamp((k->u[p] - g->u0) * g->per, g->across - 1);
        int64_t row = clamp((k->v[p] - g->v0) * g->per, g->down - 1);
        double *cell = k->coarse + row * g->across + col;
        *cell = k->r2[p] > *cell ? k->r2[p] : *cell;
    }
    for (int64_t r = 0; r < g->down; r++)
        for (int64_t c = 0; c < g->across; c++) {
            double most = 0.0;
            for (int64_t i = r > 0 ? r - 1 : 0; i <= r + 1 && i < g->down; i++)
                for (int64_t j = c > 0 ? c - 1 : 0; j <= c + 1 && j < g->across; j++)
                    most = k->coarse[i * g->across + j] > most ? k->coarse[i * g->across + j] : most;
            k->bound[r * g->across + c] = sqrt(most) * 1.0000001;
        }
    return 1;
}

/* Sort the positions of candidates into bins. */
static int fill_bins(Scratch *k, int64_t n, const Bins *g)
{
    int64_t cells = g->across * g->down;
    if (cells + 2 > k->starts_capacity) {
        if (!grow(&k->starts, cells + 2, sizeof(int32_t)))
            return 0;
        k->starts_capacity = cells + 2;
    }
    memset(k->starts, 0, (size_t)(cells + 2) * sizeof *k->starts);
    for (int64_t p = 0; p < n; p++) {
        int64_t col = clamp((k->u[p] - g->u0) * g->per, g->across - 1);
        int64_t row = clamp((k->v[p] - g->v0) * g->per, g->down - 1);
        int64_t bin = row * g->across + col;
        k->from[p] = (int32_t)bin;
        k->starts[bin + 2]++;
    }
    for (int64_t c = 1; c < cells + 2; c++)
        k->starts[c] += k->starts[c - 1];
    /* `from` first says each candidate's bin; by way of `u`, which is no longer needed, it comes to
     * say which candidate stands at each place. */
    int32_t *stands = (int32_t *)k->u;
    for (int64_t p = 0; p < n; p++) {
        int32_t at = k->starts[k->from[p] + 1]++;
        k->bx[at] = k->x[p], k->by[at] = k->y[p], k->bz[at] = k->z[p];
        stands[at] = (int32_t)p;
    }
    memcpy(k->from, stands, (size_t)n * sizeof *stands);
    for (int64_t p = n; p < n + LANES; p++)
        k->bx[p] = k->by[p] = k->bz[p] = 1e9;
    return 1;
}

/* The winner among the candidates of a box of bins where distances tie: the smallest index. */
static int64_t settle_tie(const Scratch *k, const Bins *bins, const int64_t box[4],
                          const double at[3])
{
    double best = INFINITY;
    int64_t won = -1;
    for (int64_t row = box[2]; row <= box[3]; row++) {
        int32_t end = k->starts[row * bins->across + box[1] + 1];
        for (int32_t p = k->starts[row * bins->across + box[0]]; p < end; p++) {
            double dx = k->bx[p] - at[0], dy = k->by[p] - at[1], dz = k->bz[p] - at[2];
            double d = dx * dx + dy * dy + dz * dz;
            if (d < best || (d == best && k->id[k->from[p]] < k->id[k->from[won]])) {
                best = d;
                won = p;
            }
        }
    }
    return won;
}

/* The nearest candidate of each of n targets, -1 where none's radius reaches it. A row of bins is a
 * run in memory; reading up to three candidates beyond its end only adds real candidates, and the
 * first four of a run are read even if it is empty, which spares a branch. */
CLONES static void search_line(const Scratch *k, const Bins *coarse, const Bins *bins,
                               const View *w, const double *tx, const double *ty, const double *tz,
                               int64_t n, int32_t *out)
{
    double far = bins->size;
    for (int64_t t = 0; t < n; t++) {
        double x = tx[t], y = ty[t], z = tz[t];
        out[t] = -1;
        if (isnan(x))
            continue;
        double u = x * w->e1[0] + y * w->e1[1] - bins->u0;
        double v = x * w->e2[0] + y * w->e2[1] + z * w->e2[2] - bins->v0;
        if (coarse)
            far = k->bound[clamp(v * coarse->per, coarse->down - 1) * coarse->across +
                           clamp(u * coarse->per, coarse->across - 1)];
        int64_t box[4] = {clamp((u - far) * bins->per, bins->across - 1),
                          clamp((u + far) * bins->per, bins->across - 1),
                          clamp((v - far) * bins->per, bins->down - 1),
                          clamp((v + far) * bins->per, bins->down - 1)};
        int32_t candidates = 0;
        for (int64_t row = box[2]; row <= box[3]; row++) {
            const int32_t *starts = k->starts + row * bins->across;
            candidates |= starts[box[1] + 1] - starts[box[0]];
        }
        if (candidates == 0)
            continue;
        Lane best = {INFINITY, INFINITY, INFINITY, INFINITY};
        Mask place = {-1, -1, -1, -1}, tie = {0, 0, 0, 0};
        const Mask step = {0, 1, 2, 3};
        for (int64_t row = box[2]; row <= box[3]; row++) {
            const int32_t *starts = k->starts + row * bins->across;
            int32_t p = starts[box[0]], end = starts[box[1] + 1];
            do {
                Lane dx = *(const LaneLoad *)(k->bx + p) - x;
                Lane dy = *(const LaneLoad *)(k->by + p) - y;
                Lane dz = *(const LaneLoad *)(k->bz + p) - z;
                Lane d = dx * dx + dy * dy + dz * dz;
                Mask nearer = (Mask)(d < best);
                tie = (tie & ~nearer) | (Mask)(d == best);
                best = (Lane)((nearer & (Mask)d) | (~nearer & (Mask)best));
                place = (nearer & (step + (int64_t)p)) | (~nearer & place);
                p += LANES;
            } while (p < end);
        }
        int first = best[1] < best[0] ? 1 : 0, second = best[3] < best[2] ? 3 : 2;
        int lane = best[second] < best[first] ? second : first;
        double least = best[lane];
        if (least > 4.0)
            continue;
        int64_t won = place[lane];
        int ties = 0;
        for (int other = 0; other < LANES; other++)
            ties |= (best[other] == least) & ((other != lane) | (tie[other] != 0));
        if (ties)
            won = settle_tie(k, bins, box, (const double[3]){x, y, z});
        if (won >= 0 && least <= k->r2[k->from[won]])
            out[t] = k->id[k->from[won]];
    }
}

/* Widen the view to the targets of one line; NaN widens nothing. */
CLONES static void spread(const double *x, const double *y, const double *z, int64_t n, View *w)
{
    View v = *w;
    for (int64_t i = 0; i < n; i++) {
        double u = x[i] * v.e1[0] + y[i] * v.e1[1];
        double h = x[i] * v.e2[0] + y[i] * v.e2[1] + z[i] * v.e2[2];
        v.u_low = u < v.u_low ? u : v.u_low;
        v.u_high = u > v.u_high ? u : v.u_high;
        v.v_low = h < v.v_low ? h : v.v_low;
        v.v_high = h > v.v_high ? h : v.v_high;
    }
    *w = v;
}

static void nothing(int64_t r0, int64_t r1, int64_t c0, int64_t c1, int64_t width, int32_t *out)
{
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            out[r * width + c] = -1;
}

/* The view of a block of targets, from above its middle. */
static View look_at(const Targets *t, const Reach *reach, int64_t r0, int64_t r1, int64_t c0,
                    int64_t c1)
{
    double s, c, sine, cosine;
    sincos_degrees(wrapped(reach->lon_mid), &s, &c);
    sincos_degrees(reach->lat_mid, &sine, &cosine);
    View w = {.e1 = {-s, c, 0.0},
              .e2 = {-sine * c, -sine * s, cosine},
              .axis = {cosine * c, cosine * s, sine},
              .u_low = INFINITY, .u_high = -INFINITY, .v_low = INFINITY, .v_high = -INFINITY};
    for (int64_t r = r0; r < r1; r++) {
        int64_t at = r * t->width + c0;
        spread(t->x + at, t->y + at, t->z + at, c1 - c0, &w);
    }
    return w;
}

static int search_block(const Swath *s, const Targets *t, int64_t r0, int64_t r1, int64_t c0,
                        int64_t c1, Scratch *k, int32_t *out)
{
    Reach reach = reach_of(t, r0, r1, c0, c1, s->cap);
    int64_t points = reach.empty ? 0 : count_within_reach(s, &reach);
    if (points == 0) {
        nothing(r0, r1, c0, c1, t->width, out);
        return 1;
    }
    if ((reach.wide || points > SPLIT_POINTS) && (r1 - r0 > 1 || c1 - c0 > 1)) {
        int tall = r1 - r0 >= c1 - c0;
        int64_t r = tall ? (r0 + r1) / 2 : r1, c = tall ? c1 : (c0 + c1) / 2;
        return search_block(s, t, r0, r, c0, c, k, out) &&
               search_block(s, t, tall ? r : r0, r1, tall ? c0 : c, c1, k, out);
    }
    View w = look_at(t, &reach, r0, r1, c0, c1);
    double margin = s->cap * 1.0000001 + 1e-12;
    w.u_low -= margin, w.u_high += margin, w.v_low -= margin, w.v_high += margin;
    if (!reserve_points(k, points))
        return 0;
    int64_t n = 0;
    for (int64_t b = 0; b < s->blocks_down * s->blocks_across; b++)
        if (reaches(&reach, s->extents + 4 * b))
            n = gather(s, b, &w, k, n);
    double most = 0.0, sum = 0.0;
    for (int64_t p = 0; p < n; p++) {
        most = k->r2[p] > most ? k->r2[p] : most;
        sum += k->r2[p];
    }
    if (n == 0 || most == 0.0) {
        nothing(r0, r1, c0, c1, t->width, out);
        return 1;
    }
    /* Bins as wide as usual radii: what reaches a target lies in its bin or one of the eight around
     * it. Only where some radii are far larger, targets near those look farther. */
    double extent = fmax(w.u_high - w.u_low, w.v_high - w.v_low);
    double largest = fmax(sqrt(most) * 1.0000001, extent / 2048.0);
    double usual = fmax(fmin(largest, sqrt(2.0 * sum / (double)n)), extent / 2048.0);
    Bins bins = lay_bins(&w, usual), coarse = lay_bins(&w, largest);
    if (largest > usual && !find_bounds(k, n, &coarse, usual))
        return 0;
    if (!fill_bins(k, n, &bins))
        return 0;
    for (int64_t r = r0; r < r1; r++) {
        int64_t at = r * t->width + c0;
        search_line(k, largest > usual ? &coarse : NULL, &bins, &w, t->x + at, t->y + at, t->z + at,
                    c1 - c0, out + at);
    }
    return 1;
}

/* Index (row * cols + col) of the footprint that each target of rows [row0, row1) sees, or -1.
 * Strides are in elements; a zero stride repeats a latitude along a line or a longitude down a
 * column. Unit vectors of the targets are full arrays. Returns 0, or -1 when memory ran out. */
EXPORT int sw_nearest(const double *lat, const double *lon, int64_t rows, int64_t cols,
                      int64_t scan, const uint8_t *candidate, const double *extents, double cap,
                      const double *target_lat, int64_t lat_row, int64_t lat_col,
                      const double *target_lon, int64_t lon_row, int64_t lon_col, const double *x,
                      const double *y, const double *z, int64_t row0, int64_t row1, int64_t width,
                      int32_t *out)
{
    int64_t block_rows = sw_block_rows(scan);
    Swath s = {.lat = lat, .lon = lon, .rows = rows, .cols = cols, .scan = scan,
               .candidate = candidate, .extents = extents, .cap = cap, .block_rows = block_rows,
               .blocks_down = (rows + block_rows - 1) / block_rows,
               .blocks_across = (cols + BLOCK_COLS - 1) / BLOCK_COLS};
    Targets t = {.lat = target_lat, .lon = target_lon, .lat_row = lat_row, .lat_col = lat_col,
                 .lon_row = lon_row, .lon_col = lon_col, .width = width, .x = x, .y = y, .z = z};
    Scratch k = {0};
    int done = 1;
    for (int64_t r = row0; r < row1; r += TILE)
        for (int64_t c = 0; c < width; c += TILE)
            done = done && search_block(&s, &t, r, r + TILE < row1 ? r + TILE : row1, c,
                                        c + TILE < width ? c + TILE : width, &k, out);
    release(&k);
    return done ? 0 : -1;
}

/* Unit vectors of (height, width) targets; longitudes of a row stand side by side, and a zero
 * `lat_col` says that a row has one latitude. */
EXPORT void sw_targets(const double *lat, int64_t lat_row, int64_t lat_col, const double *lon,
                       int64_t lon_row, int64_t height, int64_t width, double *x, double *y,
                       double *z)
{
    for (int64_t r = 0; r < height; r++)
        sw_unit(lat + r * lat_row, lon + r * lon_row, lat_col, width, x + r * width, y + r * width,
                z + r * width);
}
