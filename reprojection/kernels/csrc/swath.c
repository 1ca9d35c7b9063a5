/* Swath to grid: for each target point the nearest footprint centre on the sphere.
 *
 * The rule is in reprojection/warp/swath.py, whose numpy version gives the same indices. Distances are
 * squared chords of the unit sphere in double precision, summed in one fixed order, so that every
 * machine, cell and thread count decides alike; ties go to the smallest index.
 *
 * A block of targets is seen along the axis through its middle. That view shortens distances and
 * never lengthens them, so a search by boxes of view coordinates misses nothing. Blocks of a scan by
 * 32 columns whose latitudes and longitudes are out of reach are not looked at; the rest are binned
 * (swath_search.c).
 */
#include "swath.h"

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

CLONES void find_circles(const double *degrees, int64_t step, int64_t n, double most,
                         const Circles *of)
{
    Circles to = *of;
    for (int64_t i = 0; i < n; i++) {
        double at = degrees[i * step];
        sincos_degrees(at, &to.sine[i], &to.cosine[i]);
        to.miss[i] = fabs(at) <= most ? 0.0 : NAN;
    }
}

CLONES void along_parallel(const Circles *parallels, int64_t line, const Circles *meridians,
                           int64_t first, int64_t n, double *x, double *y, double *z)
{
    const double *sines = meridians->sine + first, *cosines = meridians->cosine + first;
    const double *misses = meridians->miss + first;
    double sine = parallels->sine[line], cosine = parallels->cosine[line];
    double bad = parallels->miss[line];
    for (int64_t i = 0; i < n; i++) {
        double miss = misses[i] + bad;
        x[i] = cosine * cosines[i] + miss;
        y[i] = cosine * sines[i] + miss;
        z[i] = sine + miss;
    }
}

/* Four doubles, and eight floats, whose least and most are kept side by side. Comparisons with NaN
 * fail, so what is kept stays. */
typedef double Four __attribute__((vector_size(32)));
typedef int64_t FourMask __attribute__((vector_size(32)));
typedef Four FourLoad __attribute__((aligned(8), may_alias));
typedef float Eight __attribute__((vector_size(32)));
typedef int32_t EightMask __attribute__((vector_size(32)));
typedef Eight EightLoad __attribute__((aligned(4), may_alias));

static inline Four lesser(Four value, Four least)
{
    FourMask is = (FourMask)(value < least);
    return (Four)((is & (FourMask)value) | (~is & (FourMask)least));
}

static inline Four greater(Four value, Four most)
{
    FourMask is = (FourMask)(value > most);
    return (Four)((is & (FourMask)value) | (~is & (FourMask)most));
}

/* Widen [low, high] to n values. */
static inline void widen_plain(const double *value, int64_t n, double *low, double *high)
{
    Four least[2] = {(Four){0} + *low, (Four){0} + *low};
    Four most[2] = {(Four){0} + *high, (Four){0} + *high};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 2; k++) {
            Four four = *(const FourLoad *)(value + i + 4 * k);
            least[k] = lesser(four, least[k]);
            most[k] = greater(four, most[k]);
        }
    least[0] = lesser(least[1], least[0]);
    most[0] = greater(most[1], most[0]);
    for (int k = 0; k < 4; k++) {
        *low = least[0][k] < *low ? least[0][k] : *low;
        *high = most[0][k] > *high ? most[0][k] : *high;
    }
    for (; i < n; i++) {
        *low = value[i] < *low ? value[i] : *low;
        *high = value[i] > *high ? value[i] : *high;
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
            double *out = extents + ((i0 / block_rows) * across + b) * 4;
            out[0] = out[2] = INFINITY, out[1] = out[3] = -INFINITY;
            for (int64_t i = i0; i < i1; i++) {
                widen_plain(lat + i * cols + j0, n, out, out + 1);
                widen_plain(lon + i * cols + j0, n, out + 2, out + 3);
            }
        }
}

typedef struct {
    double lat_low, lat_high, lon_mid, lon_half; /* what a block of targets reaches, in degrees */
    double lat_mid;
    int empty, wide;
} Reach;

static double wrapped(double degrees)
{
    return degrees - 360.0 * floor((degrees + 180.0) / 360.0);
}

/* Widen [low, high] to n longitudes relative to `first`, in [-180, 180). */
static inline void widen(const double *lon, int64_t n, double first, double *low, double *high)
{
    Four least = (Four){0} + *low, most = (Four){0} + *high;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        Four d = *(const FourLoad *)(lon + i) - first;
        d -= (Four)((FourMask)(d >= 180.0) & (FourMask)((Four){0} + 360.0));
        d += (Four)((FourMask)(d < -180.0) & (FourMask)((Four){0} + 360.0));
        least = lesser(d, least);
        most = greater(d, most);
    }
    for (int k = 0; k < 4; k++) {
        *low = least[k] < *low ? least[k] : *low;
        *high = most[k] > *high ? most[k] : *high;
    }
    for (; i < n; i++) {
        double d = lon[i] - first;
        d = d >= 180.0 ? d - 360.0 : d;
        d = d < -180.0 ? d + 360.0 : d;
        *low = d < *low ? d : *low;
        *high = d > *high ? d : *high;
    }
}

/* Targets outside [-90, 90] and [-180, 180] must be NaN already. */
CLONES static Reach reach_of(const Targets *t, int64_t r0, int64_t r1, int64_t c0, int64_t c1, double cap)
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

/* List the blocks within reach; returns how many, or -1 when there is no memory. */
static int64_t list_within_reach(const Swath *s, const Reach *reach, Scratch *k)
{
    int64_t all = s->blocks_down * s->blocks_across, found = 0;
    if (all > k->blocks_capacity) {
        if (!grow(&k->blocks, all, sizeof *k->blocks))
            return -1;
        k->blocks_capacity = all;
    }
    for (int64_t b = 0; b < all; b++) {
        const double *extent = s->extents + 4 * b;
        if ((extent[0] <= reach->lat_high) & (extent[1] >= reach->lat_low))
            k->blocks[found++] = (int32_t)b;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < found; i++)
        if (reaches(reach, s->extents + 4 * (int64_t)k->blocks[i]))
            k->blocks[kept++] = k->blocks[i];
    return kept;
}

int grow(void *array, int64_t n, size_t size)
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
    float **floats[] = {&k->u, &k->v, &k->h, &k->bu, &k->bv, &k->bh};
    int32_t **integers[] = {&k->id, &k->bin, &k->from};
    for (size_t a = 0; a < sizeof floats / sizeof *floats; a++)
        if (!grow(floats[a], n + 1, sizeof(float)))
            return 0;
    for (size_t a = 0; a < sizeof integers / sizeof *integers; a++)
        if (!grow(integers[a], n + 1, sizeof(int32_t)))
            return 0;
    if (!grow(&k->r2, n + 1, sizeof(double)))
        return 0;
    k->capacity = n;
    return 1;
}

static void release(Scratch *k)
{
    void *arrays[] = {k->blocks, k->u, k->v, k->h, k->r2, k->id, k->bin, k->bu, k->bv, k->bh,
                      k->from, k->starts, k->coarse, k->bound, k};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++)
        free(arrays[a]);
}

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

/* See the points of a line in a view. */
CLONES static void look(const View *w, const double *x, const double *y, const double *z, int64_t n,
                        float *u, float *v, float *h)
{
    View p = *w;
    for (int64_t i = 0; i < n; i++) {
        u[i] = (float)(x[i] * p.e1[0] + y[i] * p.e1[1]);
        v[i] = (float)(x[i] * p.e2[0] + y[i] * p.e2[1] + z[i] * p.e2[2]);
        h[i] = (float)(x[i] * p.axis[0] + y[i] * p.axis[1] + z[i] * p.axis[2] - 1.0);
    }
}

/* Append the candidates of one block that lie in view of the targets. */
static int64_t gather(const Swath *s, int64_t block, const View *w, Scratch *k, int64_t n)
{
    double x[(BLOCK_ROWS_MAX + 2) * WINDOW], y[(BLOCK_ROWS_MAX + 2) * WINDOW];
    double z[(BLOCK_ROWS_MAX + 2) * WINDOW], r2[WINDOW];
    float u[BLOCK_COLS], v[BLOCK_COLS], h[BLOCK_COLS];
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
    float u_low = (float)w->u_low, u_high = (float)w->u_high;
    float v_low = (float)w->v_low, v_high = (float)w->v_high;
    for (int64_t i = i0; i < i1; i++) {
        int64_t at = (i - i0 + 1) * WINDOW;
        int above = s->scan == 1 || i % s->scan != 0;
        int below = s->scan == 1 || (i + 1) % s->scan != 0;
        line_radii(x + at, y + at, z + at, above, below, cols, cap2, r2);
        look(w, x + at + 1, y + at + 1, z + at + 1, cols, u, v, h);
        int64_t first = i * s->cols + j0;
        for (int64_t j = 0; j < cols; j++) {
            int in = (u[j] >= u_low) & (u[j] <= u_high) & (v[j] >= v_low) & (v[j] <= v_high) &
                     (h[j] > -1.0F);
            if (s->candidate)
                in &= s->candidate[first + j] != 0;
            k->u[n] = u[j], k->v[n] = v[j], k->h[n] = h[j];
            k->r2[n] = r2[j + 1], k->id[n] = (int32_t)(first + j);
            n += in;
        }
    }
    return n;
}

static void nothing(const Part *p, int64_t width, int32_t *out)
{
    for (int64_t r = p->r0; r < p->r1; r++)
        for (int64_t c = p->c0; c < p->c1; c++)
            out[r * width + c] = -1;
}

CLONES static void widen_view(const float *value, int64_t n, float *low, float *high)
{
    Eight least = (Eight){0} + *low, most = (Eight){0} + *high;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        Eight eight = *(const EightLoad *)(value + i);
        EightMask less = (EightMask)(eight < least), more = (EightMask)(eight > most);
        least = (Eight)((less & (EightMask)eight) | (~less & (EightMask)least));
        most = (Eight)((more & (EightMask)eight) | (~more & (EightMask)most));
    }
    for (int k = 0; k < 8; k++) {
        *low = least[k] < *low ? least[k] : *low;
        *high = most[k] > *high ? most[k] : *high;
    }
    for (; i < n; i++) {
        *low = value[i] < *low ? value[i] : *low;
        *high = value[i] > *high ? value[i] : *high;
    }
}

/* The view of a block of targets, from above its middle; the targets go into `k` by groups. */
static View look_at(const Targets *t, const Reach *reach, const Part *p, Scratch *k)
{
    double s, c, sine, cosine;
    sincos_degrees(wrapped(reach->lon_mid), &s, &c);
    sincos_degrees(reach->lat_mid, &sine, &cosine);
    View w = {.e1 = {-s, c, 0.0},
              .e2 = {-sine * c, -sine * s, cosine},
              .axis = {cosine * c, cosine * s, sine}};
    int64_t across = p->c1 - p->c0, groups = (across + GROUP_COLS - 1) / GROUP_COLS;
    int64_t height = (p->r1 - p->r0 + GROUP_ROWS - 1) / GROUP_ROWS * GROUP_ROWS;
    float low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    double x[TILE], y[TILE], z[TILE], lons[TILE];
    float u[TILE], v[TILE], h[TILE];
    double sines[TILE], cosines[TILE], misses[TILE];
    double own_sine, own_cosine, own_miss;
    const Circles meridians = {sines, cosines, misses};
    const Circles parallel = {&own_sine, &own_cosine, &own_miss};
    for (int64_t r = 0; r < height; r++) {
        int64_t seen = r < p->r1 - p->r0 ? across : 0;
        if (seen) {
            const double *lat = t->lat + (p->r0 + r) * t->lat_row + p->c0 * t->lat_col;
            const double *lon = t->lon + (p->r0 + r) * t->lon_row + p->c0 * t->lon_col;
            for (int64_t i = 0; t->lon_col == 0 && i < across; i++)
                lons[i] = lon[0];
            lon = t->lon_col ? lon : lons;
            if (t->lat_col != 0)
                sw_unit(lat, lon, 1, across, x, y, z);
            else {
                if (r == 0 || t->lon_row != 0)
                    find_circles(lon, 1, across, MOST_LON, &meridians);
                find_circles(lat, 1, 1, MOST_LAT, &parallel);
                along_parallel(&parallel, 0, &meridians, 0, across, x, y, z);
            }
            look(&w, x, y, z, across, u, v, h);
            widen_view(u, across, &low[0], &high[0]);
            widen_view(v, across, &low[1], &high[1]);
        }
        for (int64_t i = seen; i < groups * GROUP_COLS; i++)
            u[i] = v[i] = h[i] = NAN;
        for (int64_t g = 0; g < groups; g++) {
            int64_t to = (r / GROUP_ROWS * groups + g) * LANES + r % GROUP_ROWS * GROUP_COLS;
            memcpy(k->tu + to, u + g * GROUP_COLS, GROUP_COLS * sizeof *u);
            memcpy(k->tv + to, v + g * GROUP_COLS, GROUP_COLS * sizeof *v);
            memcpy(k->th + to, h + g * GROUP_COLS, GROUP_COLS * sizeof *h);
        }
    }
    w.u_low = low[0], w.u_high = high[0], w.v_low = low[1], w.v_high = high[1];
    return w;
}

static int search_block(const Swath *s, const Targets *t, const Part *p, Scratch *k, int32_t *out)
{
    Reach reach = reach_of(t, p->r0, p->r1, p->c0, p->c1, s->cap);
    int64_t blocks = reach.empty ? 0 : list_within_reach(s, &reach, k);
    if (blocks < 0)
        return 0;
    if (blocks == 0) {
        nothing(p, t->width, out);
        return 1;
    }
    int64_t points = blocks * s->block_rows * BLOCK_COLS;
    if ((reach.wide || points > SPLIT_POINTS) && (p->r1 - p->r0 > 1 || p->c1 - p->c0 > 1)) {
        Part one = *p, other = *p;
        if (p->r1 - p->r0 >= p->c1 - p->c0)
            one.r1 = other.r0 = (p->r0 + p->r1) / 2;
        else
            one.c1 = other.c0 = (p->c0 + p->c1) / 2;
        return search_block(s, t, &one, k, out) && search_block(s, t, &other, k, out);
    }
    View w = look_at(t, &reach, p, k);
    w.bound = fmax(fmax(-w.u_low, w.u_high), fmax(-w.v_low, w.v_high)) + s->cap + 1e-12;
    double margin = s->cap * 1.0000001 + w.bound * 2.4e-7;
    w.u_low -= margin, w.u_high += margin, w.v_low -= margin, w.v_high += margin;
    if (!reserve_points(k, points))
        return 0;
    int64_t n = 0;
    for (int64_t i = 0; i < blocks; i++)
        n = gather(s, k->blocks[i], &w, k, n);
    return search_candidates(s, t, p, &w, k, n, out);
}

/* Index (row * cols + col) of the footprint that each target of rows [row0, row1) sees, or -1.
 * Strides are in elements; a zero stride repeats a latitude along a line or a longitude down a
 * column. Returns 0, or -1 when memory ran out. */
EXPORT int sw_nearest(const double *lat, const double *lon, int64_t rows, int64_t cols,
                      int64_t scan, const uint8_t *candidate, const double *extents, double cap,
                      const double *target_lat, int64_t lat_row, int64_t lat_col,
                      const double *target_lon, int64_t lon_row, int64_t lon_col, int64_t row0,
                      int64_t row1, int64_t width, int32_t *out)
{
    int64_t block_rows = sw_block_rows(scan);
    Swath s = {.lat = lat, .lon = lon, .rows = rows, .cols = cols, .scan = scan,
               .candidate = candidate, .extents = extents, .cap = cap, .block_rows = block_rows,
               .blocks_down = (rows + block_rows - 1) / block_rows,
               .blocks_across = (cols + BLOCK_COLS - 1) / BLOCK_COLS};
    Targets t = {.lat = target_lat, .lon = target_lon, .lat_row = lat_row, .lat_col = lat_col,
                 .lon_row = lon_row, .lon_col = lon_col, .width = width};
    Scratch *k = calloc(1, sizeof *k);
    int done = k != NULL;
    for (int64_t r = row0; r < row1; r += TILE)
        for (int64_t c = 0; done && c < width; c += TILE) {
            Part part = {.r0 = r, .r1 = r + TILE < row1 ? r + TILE : row1,
                         .c0 = c, .c1 = c + TILE < width ? c + TILE : width};
            done = search_block(&s, &t, &part, k, out);
        }
    if (k)
        release(k);
    return done ? 0 : -1;
}
