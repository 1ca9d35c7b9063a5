/* The nearest of the candidates of a block of targets: bins, and eight targets at once.
 *
 * Distances are first measured in the view, in single precision. Where that leaves a doubt, between
 * two candidates or between a distance and a radius, double precision decides: see `settle`.
 */
#include "swath.h"

/* A group that is spread over more bins than this is searched target by target. */
#define MOST_BINS 64

typedef float Lane __attribute__((vector_size(4 * LANES)));
typedef int32_t Mask __attribute__((vector_size(4 * LANES)));
typedef Lane LaneLoad __attribute__((aligned(4), may_alias));

typedef struct {
    float u0, v0, per; /* per = bins per unit */
    int64_t across, down;
} Bins;

typedef struct {
    int64_t left, right, top, bottom;
} Box;

typedef struct {
    const Scratch *k;
    Bins bins, coarse;
    int uneven;    /* some radii are much larger than most: `bound` says where */
    float usual;   /* how far a target must look */
    float rounding; /* largest error of a distance in the view */
    float doubt;   /* largest error of a difference of squared distances */
    float most;    /* the largest squared radius */
} Search;

static inline int64_t clamp(float value, int64_t last)
{
    return value <= 0.0F ? 0 : value >= (float)last ? last : (int64_t)value;
}

static Bins lay_bins(const View *w, double size)
{
    Bins g = {.u0 = (float)w->u_low, .v0 = (float)w->v_low, .per = (float)(1.0 / size)};
    g.across = (int64_t)((w->u_high - w->u_low) / size) + 1;
    g.down = (int64_t)((w->v_high - w->v_low) / size) + 1;
    return g;
}

static inline int64_t bin_of(const Bins *g, float u, float v)
{
    int64_t col = clamp((u - g->u0) * g->per, g->across - 1);
    return clamp((v - g->v0) * g->per, g->down - 1) * g->across + col;
}

static inline float greater_of(float one, float other)
{
    return one > other ? one : other;
}

/* The largest of each bin and the eight around it: down the columns first, then along each row. */
CLONES static void largest_around(const float *of, const Bins *g, float *most)
{
    int64_t n = g->across;
    for (int64_t r = 0; r < g->down; r++) {
        const float *here = of + r * n;
        const float *above = r > 0 ? here - n : here, *below = r + 1 < g->down ? here + n : here;
        float *to = most + r * n;
        for (int64_t c = 0; c < n; c++)
            to[c] = greater_of(greater_of(above[c], below[c]), here[c]);
        float before = to[0];
        for (int64_t c = 0; c < n; c++) {
            float own = to[c];
            to[c] = greater_of(greater_of(before, own), c + 1 < n ? to[c + 1] : own);
            before = own;
        }
    }
}

/* Where some radii are much larger than most: the largest in each bin as wide as the largest of
 * all, and in the eight around it. So far must a target in that bin look. */
static int find_bounds(Scratch *k, int64_t n, const Bins *g, float usual)
{
    int64_t cells = g->across * g->down;
    if (cells > k->coarse_capacity) {
        if (!grow(&k->coarse, cells, sizeof(float)) || !grow(&k->bound, cells, sizeof(float)))
            return 0;
        k->coarse_capacity = cells;
    }
    for (int64_t c = 0; c < cells; c++)
        k->coarse[c] = usual;
    double far = (double)usual * usual * 0.999997;
    for (int64_t p = 0; p < n; p++) {
        if (k->r2[p] < far)
            continue;
        float radius = (float)sqrt(k->r2[p]) * 1.000001F;
        float *cell = k->coarse + bin_of(g, k->u[p], k->v[p]);
        *cell = radius > *cell ? radius : *cell;
    }
    largest_around(k->coarse, g, k->bound);
    return 1;
}

/* Sort the candidates into bins. */
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
        k->bin[p] = (int32_t)bin_of(g, k->u[p], k->v[p]);
        k->starts[k->bin[p] + 2]++;
    }
    for (int64_t c = 1; c < cells + 2; c++)
        k->starts[c] += k->starts[c - 1];
    for (int64_t p = 0; p < n; p++) {
        int32_t at = k->starts[k->bin[p] + 1]++;
        k->bu[at] = k->u[p], k->bv[at] = k->v[p], k->bh[at] = k->h[p];
        k->from[at] = (int32_t)p;
    }
    return 1;
}

/* The bins that may hold what the targets of a group see. */
static inline Box box_of(const Search *q, Lane u, Lane v)
{
    float u_low = INFINITY, u_high = -INFINITY, v_low = INFINITY, v_high = -INFINITY;
    float far = q->usual;
    for (int i = 0; i < LANES; i++) {
        u_low = u[i] < u_low ? u[i] : u_low;
        u_high = u[i] > u_high ? u[i] : u_high;
        v_low = v[i] < v_low ? v[i] : v_low;
        v_high = v[i] > v_high ? v[i] : v_high;
        if (q->uneven && u[i] == u[i]) {
            float bound = q->k->bound[bin_of(&q->coarse, u[i], v[i])];
            far = bound > far ? bound : far;
        }
    }
    Box empty = {0, -1, 0, -1};
    if (!(u_low <= u_high))
        return empty;
    far += q->rounding;
    const Bins *g = &q->bins;
    Box box = {clamp((u_low - far - g->u0) * g->per, g->across - 1),
               clamp((u_high + far - g->u0) * g->per, g->across - 1),
               clamp((v_low - far - g->v0) * g->per, g->down - 1),
               clamp((v_high + far - g->v0) * g->per, g->down - 1)};
    return box;
}

typedef struct {
    Lane best, second; /* squared distances of the nearest and the next */
    Mask place;        /* of the nearest, by bin */
} Found;

static inline Lane chosen(Mask mask, Lane one, Lane other)
{
    return (Lane)((mask & (Mask)one) | (~mask & (Mask)other));
}

/* The two nearest candidates of a box for each target of a group. */
static inline Found scan(const Search *q, const Box *box, Lane u, Lane v, Lane h)
{
    const Scratch *k = q->k;
    Lane none = (Lane){0} + INFINITY;
    Found f = {.best = none, .second = none, .place = (Mask){0} - 1};
    for (int64_t row = box->top; row <= box->bottom; row++) {
        const int32_t *starts = k->starts + row * q->bins.across;
        int32_t end = starts[box->right + 1];
        for (int32_t p = starts[box->left]; p < end; p++) {
            Lane du = k->bu[p] - u, dv = k->bv[p] - v, dh = k->bh[p] - h;
            Lane d = du * du + dv * dv + dh * dh;
            Mask nearer = (Mask)(d < f.best);
            Lane larger = chosen(nearer, f.best, d);
            f.best = chosen(nearer, d, f.best);
            f.second = chosen((Mask)(larger < f.second), larger, f.second);
            f.place = (nearer & p) | (~nearer & f.place);
        }
    }
    return f;
}

/* What one target sees by double precision: of the candidates of a box that may be nearest. */
static int32_t settle(const Swath *s, const Targets *t, const Search *q, const Box *box,
                      int64_t row, int64_t col, const float at[3], float nearest)
{
    const Scratch *k = q->k;
    double x, y, z, cx = 0.0, cy = 0.0, cz = 0.0, lat = NAN, lon = NAN, best = INFINITY;
    sw_unit(t->lat + row * t->lat_row + col * t->lat_col,
            t->lon + row * t->lon_row + col * t->lon_col, 1, 1, &x, &y, &z);
    int64_t won = -1;
    for (int64_t r = box->top; r <= box->bottom; r++) {
        const int32_t *starts = k->starts + r * q->bins.across;
        for (int32_t p = starts[box->left]; p < starts[box->right + 1]; p++) {
            float du = k->bu[p] - at[0], dv = k->bv[p] - at[1], dh = k->bh[p] - at[2];
            if (du * du + dv * dv + dh * dh > nearest + q->doubt)
                continue;
            int32_t id = k->id[k->from[p]];
            if (s->lat[id] != lat || s->lon[id] != lon) { /* damaged files repeat one place */
                lat = s->lat[id], lon = s->lon[id];
                sw_unit(&lat, &lon, 1, 1, &cx, &cy, &cz);
            }
            double dx = cx - x, dy = cy - y, dz = cz - z;
            double d = dx * dx + dy * dy + dz * dz;
            if (d < best || (d == best && won >= 0 && id < k->id[won])) {
                best = d;
                won = k->from[p];
            }
        }
    }
    return won >= 0 && best <= k->r2[won] ? k->id[won] : -1;
}

/* Search a group whose first target is at (row, col); `only` limits it to one target, or is -1. */
static inline void search_group(const Swath *s, const Targets *t, const Part *part, const Search *q,
                                int64_t row, int64_t col, Lane u, Lane v, Lane h, const Box *box,
                                int only, int32_t *out)
{
    const Scratch *k = q->k;
    Found f = scan(q, box, u, v, h);
    for (int i = only < 0 ? 0 : only; i < (only < 0 ? LANES : only + 1); i++) {
        int64_t r = row + i / GROUP_COLS, c = col + i % GROUP_COLS;
        if (r >= part->r1 || c >= part->c1)
            continue;
        int32_t *to = out + r * t->width + c;
        *to = -1;
        float best = f.best[i];
        if (!(best <= q->most + q->doubt))
            continue;
        int32_t from = k->from[f.place[i]];
        double spare = k->r2[from] - (double)best;
        if (f.second[i] - best > q->doubt && fabs(spare) > q->doubt)
            *to = spare > 0.0 ? k->id[from] : -1;
        else
            *to = settle(s, t, q, box, r, c, (const float[3]){u[i], v[i], h[i]}, best);
    }
}

CLONES static void search_groups(const Swath *s, const Targets *t, const Part *part,
                                 const Search *q, int32_t *out)
{
    const Scratch *k = q->k;
    int64_t across = (part->c1 - part->c0 + GROUP_COLS - 1) / GROUP_COLS;
    int64_t down = (part->r1 - part->r0 + GROUP_ROWS - 1) / GROUP_ROWS;
    for (int64_t g = 0; g < down * across; g++) {
        int64_t row = part->r0 + g / across * GROUP_ROWS, col = part->c0 + g % across * GROUP_COLS;
        Lane u = *(const LaneLoad *)(k->tu + g * LANES);
        Lane v = *(const LaneLoad *)(k->tv + g * LANES);
        Lane h = *(const LaneLoad *)(k->th + g * LANES);
        Box box = box_of(q, u, v);
        if ((box.right - box.left + 1) * (box.bottom - box.top + 1) <= MOST_BINS) {
            search_group(s, t, part, q, row, col, u, v, h, &box, -1, out);
            continue;
        }
        for (int i = 0; i < LANES; i++) {
            Lane one_u = (Lane){0} + u[i], one_v = (Lane){0} + v[i], one_h = (Lane){0} + h[i];
            Box own = box_of(q, one_u, one_v);
            search_group(s, t, part, q, row, col, one_u, one_v, one_h, &own, i, out);
        }
    }
}

/* The largest of n values, which are not negative, and their sum. */
CLONES static void add_up(const double *value, int64_t n, double *most, double *sum)
{
    double largest[8] = {0.0}, sums[8] = {0.0};
    for (int64_t i = 0; i < n; i++) {
        largest[i % 8] = value[i] > largest[i % 8] ? value[i] : largest[i % 8];
        sums[i % 8] += value[i];
    }
    for (int k = 0; k < 8; k++) {
        *most = largest[k] > *most ? largest[k] : *most;
        *sum += sums[k];
    }
}

int search_candidates(const Swath *s, const Targets *t, const Part *part, const View *w, Scratch *k,
                      int64_t n, int32_t *out)
{
    double most = 0.0, sum = 0.0;
    add_up(k->r2, n, &most, &sum);
    if (n == 0 || most == 0.0) {
        for (int64_t r = part->r0; r < part->r1; r++)
            for (int64_t c = part->c0; c < part->c1; c++)
                out[r * t->width + c] = -1;
        return 1;
    }
    /* Bins as wide as usual radii: what reaches a target lies in its bin or one of the eight around
     * it. Only where some radii are far larger, targets near those look farther. */
    double extent = fmax(w->u_high - w->u_low, w->v_high - w->v_low);
    double rounding = w->bound * 2.4e-7, reach = sqrt(most) + rounding;
    double largest = fmax(reach * 1.000001, extent / 2048.0);
    double usual = fmax(fmin(largest, sqrt(2.0 * sum / (double)n)), extent / 2048.0);
    Search q = {.k = k, .bins = lay_bins(w, usual), .coarse = lay_bins(w, largest),
                .uneven = largest > usual, .usual = (float)usual * 1.000001F,
                .rounding = (float)rounding,
                .doubt = (float)(4.0 * reach * rounding + 1e-6 * reach * reach),
                .most = (float)most};
    if (q.uneven && !find_bounds(k, n, &q.coarse, (float)usual))
        return 0;
    if (!fill_bins(k, n, &q.bins))
        return 0;
    search_groups(s, t, part, &q, out);
    return 1;
}
