/* Window methods: a chunk of a target grid, all bands, by blocks of 128 x 128. Compiled for the
   target set before this is included. */
#include "job.h"
#include "types.h"
#include "vectors.h"

/* Source pixels per target pixel beyond which kernels widen; GDAL's threshold. */
#define WIDENING (1.0 / 0.95)

typedef struct {
    double value;
    int64_t weight;
} Weighed;

typedef struct {
    double centres[BLOCK * BLOCK * 2];
    double corners[(BLOCK + 1) * (BLOCK + 1) * 2];
    Scratch pixels, shares, list;
} WindowWork;

typedef struct {
    int (*rows)(const Job *, const double *, int64_t, const double *, int64_t, int64_t, int64_t,
                int, int, int, int, WindowWork *);
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

/* Corners that are no place become the centre; those across the antimeridian come back beside it.
   Returns 0 where the centre is no place. */
static int prepare_corners(const Job *job, const double *at, double *q) {
    if (at[0] != at[0] || at[1] != at[1] || fabs(at[0]) > 1e9 || fabs(at[1]) > 1e9) return 0;
    for (int k = 0; k < 4; k++) {
        double *corner = q + 2 * k;
        if (corner[0] != corner[0] || corner[1] != corner[1]) {
            corner[0] = at[0];
            corner[1] = at[1];
        }
        if (job->turn_columns > 0) {
            double turn = job->turn_columns * cos(job->turn_angle + corner[1] * job->turn_step);
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

#define IMPLEMENTATION "windows_impl.h"
#include "each_type.h"

static int run(const Job *job, const WindowType *type) {
    WindowWork *work = calloc(1, sizeof(WindowWork));
    if (!work) return -1;
    int failed = 0;
    int64_t first = floor_div(job->number_row + job->top, BLOCK);
    int64_t last = floor_div(job->number_row + job->bottom - 1, BLOCK);
    int64_t left = floor_div(job->number_col + job->left, BLOCK);
    int64_t right = floor_div(job->number_col + job->right - 1, BLOCK);
    int64_t n = 0, width = job->right - job->left;
    for (int64_t i = first; i <= last && !failed; i++)
        for (int64_t j = left; j <= right && !failed; j++, n++) {
            if (!job->by_window[n]) continue;
            int64_t row0 = i * BLOCK - job->number_row, col0 = j * BLOCK - job->number_col;
            int top = (int)greater(0, job->top - row0), bottom = (int)lesser(BLOCK, job->bottom - row0);
            int west = (int)greater(0, job->left - col0), east = (int)lesser(BLOCK, job->right - col0);
            if (job->rowwise) {
                int64_t skip = (row0 - job->top) * width + (col0 - job->left);
                int64_t skip_corners = (row0 - job->top) * (width + 1) + (col0 - job->left);
                failed = type->rows(job, job->centres + 2 * skip, width,
                                    job->corners + 2 * skip_corners, width + 1, row0, col0, top,
                                    bottom, west, east, work);
                continue;
            }
            int64_t down = i - job->block_row, across = j - job->block_col;
            const double *centres = job->listed[n], *corners = job->listed_edges[n];
            if (job->kinds[down * job->across + across] != LISTED_BLOCK) {
                int64_t stride = 2 * (job->across + 3);
                const double *nodes = job->nodes + down * stride + 2 * across;
                bicubic_places(work->centres, job->centre_weights, BLOCK, nodes, stride, top,
                               bottom);
                bicubic_places(work->corners, job->edge_weights, BLOCK + 1, nodes, stride, top,
                               bottom + 1);
                centres = work->centres;
                corners = work->corners;
            }
            failed = type->rows(job, centres, BLOCK, corners, BLOCK + 1, row0, col0, top, bottom,
                                west, east, work);
        }
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
