/* Methods that look at a window of source pixels under each target pixel, for one pixel type:
   area averages, mode, minimum, maximum, median, and bilinear and cubic widened for downsampling.
   Sums run row by row in float64, in the order the numpy versions have. */

#include "pixel_impl.h"

typedef T NAME(Row) __attribute__((vector_size(8 * sizeof(T))));

/* GDAL's average: the box between the first and the third corner, its edge pixels by their share. */
static T NAME(gdal_average)(const Job *job, int64_t band, const double *q, Scratch *scratch,
                            Box within, int *failed) {
    T fill = *(const T *)job->fill;
    double x0 = fmin(q[0], q[4]), x1 = fmax(q[0], q[4]);
    double y0 = fmin(q[1], q[5]), y1 = fmax(q[1], q[5]);
    Box box = {(int64_t)floor(y0 + 1e-10), (int64_t)ceil(y1 - 1e-10), (int64_t)floor(x0 + 1e-10),
               (int64_t)ceil(x1 - 1e-10)};
    box.r1 = greater(box.r1, box.r0 + 1);
    box.c1 = greater(box.c1, box.c0 + 1);
    Box seen = common_box(box, within);
    if (seen.r0 >= seen.r1 || seen.c0 >= seen.c1) return fill;
    int64_t stride;
    const T *view = NAME(view)(job, band, seen, scratch, &stride);
    if (!view) {
        *failed |= stride < 0;
        return fill;
    }
    double first_x = box.c1 - box.c0 == 1 ? 1.0 : 1.0 - (x0 - (double)box.c0);
    double last_x = 1.0 - ((double)box.c1 - x1);
    double first_y = box.r1 - box.r0 == 1 ? 1.0 : 1.0 - (y0 - (double)box.r0);
    double last_y = 1.0 - ((double)box.r1 - y1);
    double total = 0, weight = 0;
    /* Column by column, eight of them side by side; each column's sum runs down its rows. */
    for (int64_t c = seen.c0; c < seen.c1; c += 8) {
        int64_t count = lesser(8, seen.c1 - c);
        Eight sums = {0}, weights = {0};
        for (int64_t r = seen.r0; r < seen.r1; r++) {
            const T *p = view + (r - seen.r0) * stride + (c - seen.c0);
            double wy = r == box.r0 ? first_y : r + 1 == box.r1 ? last_y : 1.0;
            NAME(Row) row = {0};
            if (count == 8)
                memcpy(&row, p, sizeof row);
            else
                for (int64_t k = 0; k < count; k++) row[k] = p[k];
#if T_SMALL
            Eight v = __builtin_convertvector(row, Eight);
#else
            Eight v;
            for (int k = 0; k < 8; k++) v[k] = (double)row[k];
#endif
            EightMask valid = v != (double)fill;
            if (!T_INTEGER) valid &= v == v;
            v = (Eight)(valid & (EightMask)v);
            sums = sums + wy * v;
            weights = weights + (Eight)(valid & (EightMask)((Eight){0} + wy));
        }
        for (int64_t k = 0; k < count; k++) {
            double wx = c + k == box.c0 ? first_x : c + k + 1 == box.c1 ? last_x : 1.0;
            total += wx * sums[k];
            weight += wx * weights[k];
        }
    }
    return weight > 0 ? NAME(finish_real)(total / weight, fill) : fill;
}

static T NAME(sorted_choice)(Weighed *list, int64_t count, int median, T fill) {
    if (!count) return fill;
    sort_weighed(list, count);
    int64_t whole = 0, running = 0, best = 0;
    double chosen = list[0].value;
    for (int64_t k = 0; k < count; k++) whole += list[k].weight;
    for (int64_t k = 0; k < count; k++) {
        if (median) {
            running += list[k].weight;
            if (2 * running >= whole) return (T)list[k].value;
        } else {
            running = k && list[k].value == list[k - 1].value ? running + list[k].weight
                                                              : list[k].weight;
            if (running > best) {
                best = running;
                chosen = list[k].value;
            }
        }
    }
    return (T)chosen;
}

/* Exact shares of the pixels under the quadrilateral: average, mode, minimum, maximum, median. */
static T NAME(by_area)(const Job *job, int64_t band, const double *q, WindowWork *work, Box within,
                       int *failed) {
    T fill = *(const T *)job->fill;
    Box box = {(int64_t)floor(fmin(fmin(q[1], q[3]), fmin(q[5], q[7]))),
               (int64_t)ceil(fmax(fmax(q[1], q[3]), fmax(q[5], q[7]))),
               (int64_t)floor(fmin(fmin(q[0], q[2]), fmin(q[4], q[6]))),
               (int64_t)ceil(fmax(fmax(q[0], q[2]), fmax(q[4], q[6])))};
    box = common_box(box, within);
    if (box.r0 >= box.r1 || box.c0 >= box.c1) return fill;
    int64_t stride, width = box.c1 - box.c0, height = box.r1 - box.r0;
    const T *view = NAME(view)(job, band, box, &work->pixels, &stride);
    if (!view) {
        *failed |= stride < 0;
        return fill;
    }
    double *shares = scratch_of(&work->shares, (size_t)(width + 1) * sizeof(double));
    int listing = job->method == MODE || job->method == MEDIAN;
    Weighed *list =
        listing ? scratch_of(&work->list, (size_t)(width * height) * sizeof(Weighed)) : NULL;
    if (!shares || (listing && !list)) {
        *failed = 1;
        return fill;
    }
    double total = 0, weight = 0;
    T extreme = fill;
    int64_t count = 0, found = 0;
    for (int64_t r = 0; r < height; r++) {
        row_shares(shares, q, (double)(box.r0 + r), (double)box.c0, width);
        for (int64_t c = 0; c < width; c++) {
            T v = view[r * stride + c];
            double share = fabs(shares[c] - shares[c + 1]);
            if (share < 1e-9 || !(IS_VALID(v, fill))) continue;
            total += share * (double)v;
            weight += share;
            if (job->method == MINIMUM) extreme = !found || v < extreme ? v : extreme;
            if (job->method == MAXIMUM) extreme = !found || v > extreme ? v : extreme;
            if (listing) {
                list[count].value = (double)v;
                list[count++].weight = (int64_t)rint(share * 1073741824.0);
            }
            found = 1;
        }
    }
    if (!found) return fill;
    if (listing) return NAME(sorted_choice)(list, count, job->method == MEDIAN, fill);
    return job->method == AVERAGE ? NAME(finish_real)(total / weight, fill) : extreme;
}

/* Bilinear and cubic with the kernel as wide as the target pixel. */
static T NAME(widened)(const Job *job, int64_t band, const double *at, double scale_x,
                       double scale_y, WindowWork *work, Box within, int *failed) {
    T fill = *(const T *)job->fill;
    int64_t hint = 0;
    T near = NAME(fetch)(job, band, (int64_t)floor(at[1]), (int64_t)floor(at[0]), &hint);
    if (job->nearest_rule && !(IS_VALID(near, fill))) return fill;
    double x = floor(at[0] - 0.5), y = floor(at[1] - 0.5);
    double dx = at[0] - 0.5 - x, dy = at[1] - 0.5 - y;
    double radius = job->method == CUBIC ? 2.0 : 1.0;
    int64_t reach_x = (int64_t)ceil(radius * scale_x), reach_y = (int64_t)ceil(radius * scale_y);
    Box box = {(int64_t)y + 1 - reach_y, (int64_t)y + reach_y + 1, (int64_t)x + 1 - reach_x,
               (int64_t)x + reach_x + 1};
    Box seen = common_box(box, within);
    if (seen.r0 >= seen.r1 || seen.c0 >= seen.c1) return fill;
    int64_t stride;
    const T *view = NAME(view)(job, band, seen, &work->pixels, &stride);
    double *across =
        scratch_of(&work->shares, (size_t)(seen.c1 - seen.c0) * sizeof(double));
    if (!view || !across) {
        *failed |= (!view && stride < 0) || !across;
        return fill;
    }
    for (int64_t c = seen.c0; c < seen.c1; c++)
        across[c - seen.c0] = kernel_weight(job->method, ((double)(c - (int64_t)x) - dx) / scale_x);
    double total = 0, weight = 0;
    for (int64_t r = seen.r0; r < seen.r1; r++) {
        const T *p = view + (r - seen.r0) * stride;
        double wy = kernel_weight(job->method, ((double)(r - (int64_t)y) - dy) / scale_y);
        double row_total = 0, row_weight = 0;
        for (int64_t c = 0; c < seen.c1 - seen.c0; c++) {
            int valid = IS_VALID(p[c], fill);
            row_total += valid ? across[c] * (double)p[c] : 0.0;
            row_weight += valid ? across[c] : 0.0;
        }
        total += wy * row_total;
        weight += wy * row_weight;
    }
    return weight >= 1e-6 ? NAME(finish_real)(total / weight, fill) : fill;
}

/* One target pixel from its centre and four corners (clockwise from the first). */
static T NAME(window)(const Job *job, int64_t band, const double *at, double *q, WindowWork *work,
                      Box within, int *failed) {
    T fill = *(const T *)job->fill;
    if (!prepare_corners(job, at, q)) return fill;
    if (job->method == GDAL_AVERAGE)
        return NAME(gdal_average)(job, band, q, &work->pixels, within, failed);
    if (job->method > CUBIC) return NAME(by_area)(job, band, q, work, within, failed);
    double scale_x = job->scale_x, scale_y = job->scale_y;
    if (scale_x <= 0) local_scale(q, &scale_x, &scale_y);
    scale_x = scale_x > WIDENING ? scale_x : 1.0;
    scale_y = scale_y > WIDENING ? scale_y : 1.0;
    int64_t hint = 0;
    if (scale_x == 1.0 && scale_y == 1.0)
        return NAME(single)(job, job->method, band, at[0], at[1], &hint);
    return NAME(widened)(job, band, at, scale_x, scale_y, work, within, failed);
}

/* Rows [first, last), columns [left, right) of a block, all bands; places have their pitches. */
static int NAME(window_rows)(const Job *job, const double *centres, int64_t centre_pitch,
                             const double *corners, int64_t corner_pitch, int64_t row0,
                             int64_t col0, int first, int last, int left, int right,
                             WindowWork *work) {
    int failed = 0;
    for (int64_t band = 0; band < job->bands; band++) {
        Box within = tiles_box(job, band);
        for (int i = first; i < last && !failed; i++) {
            T *out = (T *)job->out[band] + (row0 + i) * job->out_stride + col0;
            for (int j = left; j < right; j++) {
                const double *a = corners + 2 * (i * corner_pitch + j), *b = a + 2 * corner_pitch;
                double q[8] = {a[0], a[1], a[2], a[3], b[2], b[3], b[0], b[1]};
                out[j] = NAME(window)(job, band, centres + 2 * (i * centre_pitch + j), q, work,
                                      within, &failed);
            }
        }
    }
    return failed ? -1 : 0;
}

static const WindowType NAME(window_type) = {NAME(window_rows)};

#undef IS_VALID
