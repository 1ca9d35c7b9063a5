/* The share of each footprint in the ground of pixels: areas of polygons.
 *
 * The rule is in reprojection/warp/footprint_shares.py, whose numpy version gives the same shares. A
 * pixel is laid out in squares; the footprints that their corners see are known. Where a square's
 * corners see one footprint, all of it does, because the ground nearest to a footprint is convex.
 * Else its parts are bounded by the lines of equal distance to two footprints.
 */
#include "swath.h"

/* Footprints that the corners of a pixel's squares see, each once, as entries. */
typedef struct {
    int64_t n;
    int32_t *id;
    double *share;
    double *lat, *lon, *x, *y, *z;
} Entries;

typedef struct {
    int64_t mask;
    int32_t *slots; /* entry + 1; 0 where free */
    Entries entries;
    int32_t *local; /* the entry that each corner of a pixel's squares sees, or -1 */
    double *x, *y, *z; /* of those corners */
    Circles meridians, parallels; /* of all corners, if each line of them has the same; else NULL */
} Table;

typedef struct {
    double u, v;
} Place; /* in a square: u from corner 0 to 1, v from corner 0 to 3 */

static int32_t entry_of(Table *t, int32_t id)
{
    Entries *e = &t->entries;
    int64_t at = (int64_t)((uint32_t)id * 2654435761U) & t->mask;
    while (t->slots[at]) {
        int32_t entry = t->slots[at] - 1;
        if (e->id[entry] == id)
            return entry;
        at = (at + 1) & t->mask;
    }
    e->id[e->n] = id;
    e->share[e->n] = 0.0;
    t->slots[at] = (int32_t)++e->n;
    return (int32_t)e->n - 1;
}

static void forget(Table *t)
{
    if (t->entries.n)
        memset(t->slots, 0, (size_t)(t->mask + 1) * sizeof *t->slots);
    t->entries.n = 0;
}

/* How near each corner of a square is to a footprint: minus the squared chord. */
static inline void nearness(const Table *t, const int64_t corner[4], int32_t entry, double f[4])
{
    double x = t->entries.x[entry], y = t->entries.y[entry], z = t->entries.z[entry];
    for (int i = 0; i < 4; i++) {
        double dx = t->x[corner[i]] - x, dy = t->y[corner[i]] - y, dz = t->z[corner[i]] - z;
        f[i] = -((dx * dx + dy * dy) + dz * dz);
    }
}

static inline double within(double t)
{
    return t > 0.0 ? (t < 1.0 ? t : 1.0) : 0.0;
}

/* Where from corner i to corner j two footprints are equally far. */
static inline double crossing(const double a[4], const double b[4], int i, int j)
{
    double g = a[i] - b[i];
    return within(g / (g - (a[j] - b[j])));
}

/* Where three footprints are equally far. */
static inline Place meeting(const double a[4], const double b[4], const double c[4])
{
    double g = a[0] - b[0], gu = (a[1] - b[1]) - g, gv = (a[3] - b[3]) - g;
    double h = a[0] - c[0], hu = (a[1] - c[1]) - h, hv = (a[3] - c[3]) - h;
    double per = 1.0 / (gu * hv - gv * hu);
    Place p = {within((gv * h - g * hv) * per), within((g * hu - gu * h) * per)};
    return p;
}

static inline double at_place(const double f[4], Place p)
{
    return f[0] + (p.u * (f[1] - f[0]) + p.v * (f[3] - f[0]));
}

/* Twice the area of the triangle with corner (0, 0), (p.u, p.v), (q.u, q.v), signed. */
static inline double turn(Place p, Place q)
{
    return p.u * q.v - q.u * p.v;
}

static inline double four_sided(Place p, Place q, Place r, Place s)
{
    return 0.5 * fabs((turn(p, q) + turn(q, r)) + (turn(r, s) + turn(s, p)));
}

/* Take a part of what is left of a square. */
static inline double take(double part, double *left)
{
    part = part < *left ? part : *left;
    *left -= part;
    return part;
}

/* Two see it: `first` is the corner from which on as many as `count` see the first. */
static inline void share_two(double f[4][4], int first, int count, double part[4])
{
    int i = first, j = (first + 1) & 3, k = (first + 2) & 3, l = (first + 3) & 3;
    if (count == 1)
        part[0] = 0.5 * crossing(f[0], f[1], i, j) * crossing(f[0], f[1], i, l);
    else if (count == 2)
        part[0] = 0.5 * (crossing(f[0], f[1], i, l) + crossing(f[0], f[1], j, k));
    else
        part[0] = 1.0 - 0.5 * crossing(f[1], f[0], l, i) * crossing(f[1], f[0], l, k);
    part[1] = 1.0 - part[0];
}

static const Place CORNERS[4] = {{0.0, 0.0}, {1.0, 0.0}, {1.0, 1.0}, {0.0, 1.0}};

/* The place a part of the way from one corner to another that is beside it. */
static inline Place along(int i, int j, double t)
{
    Place a = CORNERS[i], b = CORNERS[j];
    Place p = {a.u + t * (b.u - a.u), a.v + t * (b.v - a.v)};
    return p;
}

/* Three see it; corners `first` and the next one see the same footprint. */
static inline void share_three(double f[4][4], const int who[4], int first, double part[4])
{
    int j = (first + 1) & 3, k = (first + 2) & 3, l = (first + 3) & 3;
    const double *a = f[who[first]], *b = f[who[k]], *c = f[who[l]];
    Place p = meeting(a, b, c);
    Place ab = along(j, k, crossing(a, b, j, k)), bc = along(k, l, crossing(b, c, k, l));
    Place ca = along(first, l, crossing(a, c, first, l));
    double left = 1.0;
    part[who[k]] = take(four_sided(CORNERS[k], bc, p, ab), &left);
    part[who[l]] = take(four_sided(CORNERS[l], ca, p, bc), &left);
    part[who[first]] = left;
}

/* Three see it; corners `first` and the one across see the same footprint. */
static inline void share_across(double f[4][4], const int who[4], int first, double part[4])
{
    int j = (first + 1) & 3, k = (first + 2) & 3, l = (first + 3) & 3;
    const double *a = f[who[first]], *b = f[who[j]], *c = f[who[l]];
    double left = 1.0;
    part[who[j]] = take(0.5 * crossing(b, a, j, first) * crossing(b, a, j, k), &left);
    part[who[l]] = take(0.5 * crossing(c, a, l, first) * crossing(c, a, l, k), &left);
    part[who[first]] = left;
}

/* Four see it. Two across from each other have a side in common, between two places where three
 * meet. */
static inline void share_four(double f[4][4], double part[4])
{
    Place e01 = along(0, 1, crossing(f[0], f[1], 0, 1)), e12 = along(1, 2, crossing(f[1], f[2], 1, 2));
    Place e23 = along(2, 3, crossing(f[2], f[3], 2, 3)), e30 = along(3, 0, crossing(f[3], f[0], 3, 0));
    Place p = meeting(f[0], f[1], f[3]), q;
    double left = 1.0;
    if (at_place(f[2], p) > at_place(f[0], p)) {
        p = meeting(f[0], f[1], f[2]);
        q = meeting(f[0], f[2], f[3]);
        part[1] = take(four_sided(CORNERS[1], e12, p, e01), &left);
        part[3] = take(four_sided(CORNERS[3], e30, q, e23), &left);
        double five = four_sided(CORNERS[0], e01, p, q) + 0.5 * fabs(turn(q, e30));
        part[0] = take(five, &left);
        part[2] = left;
    } else {
        q = meeting(f[1], f[2], f[3]);
        part[0] = take(four_sided(CORNERS[0], e01, p, e30), &left);
        part[2] = take(four_sided(CORNERS[2], e23, q, e12), &left);
        double five = four_sided(CORNERS[1], e12, q, p) + four_sided(CORNERS[1], p, e01, CORNERS[1]);
        part[1] = take(five, &left);
        part[3] = left;
    }
}

/* Corners of a square are numbered around it: top left, top right, bottom right, bottom left. */
static void share_square(Table *t, int64_t at, int64_t width)
{
    const int64_t corner[4] = {at, at + 1, at + width + 1, at + width};
    double *share = t->entries.share;
    int32_t see[4], every[4];
    for (int i = 0; i < 4; i++)
        see[i] = t->local[corner[i]];
    if (see[0] == see[1] && see[2] == see[3] && see[0] == see[2]) {
        if (see[0] >= 0)
            share[see[0]] += 1.0;
        return;
    }
    int n = 0, who[4];
    for (int i = 0; i < 4; i++) {
        if (see[i] < 0) { /* at the rim of the granule each corner stands for a quarter */
            for (int j = 0; j < 4; j++)
                if (see[j] >= 0)
                    share[see[j]] += 0.25;
            return;
        }
        int k = 0;
        while (k < n && every[k] != see[i])
            k++;
        if (k == n)
            every[n++] = see[i];
        who[i] = k;
    }
    double f[4][4], part[4];
    for (int k = 0; k < n; k++)
        nearness(t, corner, every[k], f[k]);
    if (n == 4)
        share_four(f, part);
    else if (n == 3) {
        int first = 0;
        while (first < 4 && who[first] != who[(first + 1) & 3])
            first++;
        if (first < 4)
            share_three(f, who, first, part);
        else
            share_across(f, who, who[0] == who[2] ? 0 : 1, part);
    } else {
        int first = 0, count = 0;
        for (int i = 0; i < 4; i++) {
            count += who[i] == 0;
            if (who[i] == 0 && who[(i + 3) & 3] != 0)
                first = i;
        }
        if (count == 2 && who[0] == who[2]) /* ground nearest to a footprint is in one piece */
            part[0] = part[1] = 0.5;
        else
            share_two(f, first, count, part);
    }
    for (int k = 0; k < n; k++)
        share[every[k]] += part[k];
}

/* Enter the footprints that the corners see; returns whether there are any. */
static int enter(Table *t, const int32_t *seen, int64_t stride, int64_t lines, int64_t width)
{
    int32_t last = -1, entry = -1;
    int some = 0;
    for (int64_t r = 0; r < lines; r++) {
        const int32_t *row = seen + r * stride;
        int32_t *local = t->local + r * width;
        for (int64_t c = 0; c < width; c++) {
            if (row[c] != last) {
                last = row[c];
                if (last < 0)
                    entry = -1;
                else if (r > 0 && row[c - stride] == last)
                    entry = local[c - width];
                else
                    entry = entry_of(t, last);
            }
            local[c] = entry;
            some |= entry >= 0;
        }
    }
    return some;
}

/* Share the squares of one pixel: lines [top, bottom) of squares, `per` of them in a line. */
CLONES static void share_pixel(Table *t, const double *lat, const double *lon, const Targets *p,
                        const int32_t *seen, int64_t top, int64_t bottom, int64_t left, int64_t per)
{
    int64_t width = per + 1;
    if (!enter(t, seen + top * p->width + left, p->width, bottom - top + 1, width))
        return;
    Entries *e = &t->entries;
    for (int64_t k = 0; k < e->n; k++) {
        e->lat[k] = lat[e->id[k]];
        e->lon[k] = lon[e->id[k]];
    }
    sw_unit(e->lat, e->lon, 1, e->n, e->x, e->y, e->z);
    for (int64_t r = top; r <= bottom; r++) {
        int64_t at = (r - top) * width;
        const double *row_lat = p->lat + r * p->lat_row + left * p->lat_col;
        const double *row_lon = p->lon + r * p->lon_row + left * p->lon_col;
        if (t->meridians.sine)
            along_parallel(&t->parallels, r, &t->meridians, left, width, t->x + at, t->y + at,
                           t->z + at);
        else
            sw_unit(row_lat, row_lon, p->lat_col, width, t->x + at, t->y + at, t->z + at);
    }
    for (int64_t r = 0; r < bottom - top; r++)
        for (int64_t c = 0; c < per; c++)
            share_square(t, r * width + c, width);
}

/* Shares of footprints in pixels [first, last) of each row of pixels, in squares.
 *
 * `seen` are the footprints that corners of squares see, `lines` + 1 lines of them; the first line
 * of squares is line `begun` of the rows of pixels. Writes pixel (row * pixels + column), footprint
 * and share for as many as are seen, and returns how many; -1 without memory.
 */
EXPORT int64_t sw_shares(const double *lat, const double *lon, const double *corner_lat,
                         int64_t lat_row, int64_t lat_col, const double *corner_lon,
                         int64_t lon_row, int64_t lon_col, const int32_t *seen, int64_t lines,
                         int64_t begun, int64_t pixels, int64_t per, int64_t first, int64_t last,
                         int64_t *pixel, int64_t *footprint, double *share)
{
    Targets p = {corner_lat, corner_lon, lat_row, lat_col, lon_row, lon_col, pixels * per + 1};
    int64_t most = ((lines < per ? lines : per) + 1) * (per + 1), slots = 1, n = 0;
    while (slots < 2 * most)
        slots *= 2;
    int64_t same = lat_col == 0 && lon_row == 0 && lon_col == 1 ? p.width : 0;
    int64_t tall = same ? lines + 1 : 0;
    Table t = {.mask = slots - 1};
    t.slots = calloc((size_t)slots, sizeof *t.slots);
    t.local = malloc((size_t)most * 2 * sizeof *t.local);
    double *numbers = malloc((size_t)(most * 9 + (same + tall) * 3) * sizeof *numbers);
    if (t.slots && t.local && numbers) {
        Entries *e = &t.entries;
        e->id = t.local + most;
        double **arrays[] = {&t.x, &t.y, &t.z, &e->x, &e->y, &e->z, &e->lat, &e->lon, &e->share};
        for (int64_t k = 0; k < 9; k++)
            *arrays[k] = numbers + k * most;
        if (same) {
            double *sines = numbers + 9 * most;
            t.meridians = (Circles){sines, sines + same, sines + 2 * same};
            find_circles(corner_lon, 1, same, MOST_LON, &t.meridians);
            sines += 3 * same;
            t.parallels = (Circles){sines, sines + tall, sines + 2 * tall};
            find_circles(corner_lat, lat_row, tall, MOST_LAT, &t.parallels);
        }
        for (int64_t top = 0, bottom; top < lines; top = bottom) {
            int64_t row = (begun + top) / per;
            bottom = (row + 1) * per - begun;
            bottom = bottom < lines ? bottom : lines;
            for (int64_t c = first; c < last; c++) {
                share_pixel(&t, lat, lon, &p, seen, top, bottom, c * per, per);
                for (int64_t k = 0; k < e->n; k++) {
                    if (!(e->share[k] > 0.0))
                        continue;
                    pixel[n] = row * pixels + c;
                    footprint[n] = e->id[k];
                    share[n++] = e->share[k];
                }
                forget(&t);
            }
        }
    } else
        n = -1;
    free(t.slots), free(t.local), free(numbers);
    return n;
}

/* The mean of numbers in each pixel by their shares, NaN where it has none: `of` has four numbers a
 * pixel, of which the first becomes the mean. Counted from the least number of the pixel, so that a
 * mean of equal numbers is exact. */
EXPORT void sw_means(const int64_t *pixel, const double *number, const double *share, int64_t n,
                     int64_t pixels, double *of)
{
    enum { LEAST, MOST, TOTAL, ABOVE };
    for (int64_t p = 0; p < pixels; p++) {
        double *here = of + 4 * p;
        here[LEAST] = INFINITY, here[MOST] = -INFINITY, here[TOTAL] = here[ABOVE] = 0.0;
    }
    for (int64_t i = 0; i < n; i++) {
        double *here = of + 4 * pixel[i];
        here[LEAST] = number[i] < here[LEAST] ? number[i] : here[LEAST];
        here[MOST] = number[i] > here[MOST] ? number[i] : here[MOST];
    }
    for (int64_t i = 0; i < n; i++) {
        double *here = of + 4 * pixel[i];
        here[TOTAL] += share[i];
        here[ABOVE] += share[i] * (number[i] - here[LEAST]);
    }
    for (int64_t p = 0; p < pixels; p++) {
        double *here = of + 4 * p;
        double mean = here[LEAST] + here[ABOVE] / here[TOTAL];
        here[0] = !(here[TOTAL] > 0.0) ? NAN : mean < here[MOST] ? mean : here[MOST];
    }
}
