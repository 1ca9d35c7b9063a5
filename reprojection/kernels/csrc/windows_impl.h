/* Methods that look at a window of source pixels under each target pixel, for one pixel type:
   area averages, mode, minimum, maximum, median, and bilinear and cubic widened for downsampling.
   Sums run row by row in float64, in the order the numpy versions have. */

#include "pixel_impl.h"

/* What is at hand of one row of target pixels: a view of the pixels of a box, or none. */
typedef struct {
    Box box;
    NAME(View) view;
} NAME(Around);

/* A view of a box that is not empty, out of what is at hand if that holds it. Returns as `view`. */
INLINE int NAME(see)(const Job *job, int64_t band, const NAME(Around) * around, Box box,
                     Scratch *scratch, NAME(View) * view) {
    const Box held = around->box;
    if (around->view.data && box.r0 >= held.r0 && box.r1 <= held.r1 && box.c0 >= held.c0 &&
        box.c1 <= held.c1) {
        int64_t skip = (box.r0 - held.r0) * around->view.stride + (box.c0 - held.c0);
        view->data = around->view.data + skip;
        view->stride = around->view.stride;
        view->room = around->view.room - skip;
        return 1;
    }
    return NAME(view)(job, band, box, scratch, view);
}

/* Rows of a box, its first and last by their shares where they are seen. */
typedef struct {
    int64_t first, last; /* 1 where it is seen, else 0 */
    double first_share, last_share;
    int64_t count;
} NAME(Rows);

/* Up to four columns: the sums of their valid pixels and of those pixels' shares, the inner rows
   first. */
static void NAME(columns)(const T *p, int64_t stride, const NAME(Rows) * rows, int64_t count, T fill,
                          double *sums, double *weights) {
    const int64_t last = rows->count - 1;
    for (int64_t k = 0; k < count; k++) {
        double sum = 0, weight = 0;
        for (int64_t r = rows->first; r < rows->count - rows->last; r++) {
            T v = p[r * stride + k];
            sum += IS_VALID(v, fill) ? (double)v : 0.0;
            weight += IS_VALID(v, fill) ? 1.0 : 0.0;
        }
        if (rows->first) {
            sum += IS_VALID(p[k], fill) ? rows->first_share * (double)p[k] : 0.0;
            weight += IS_VALID(p[k], fill) ? rows->first_share : 0.0;
        }
        if (rows->last) {
            T v = p[last * stride + k];
            sum += IS_VALID(v, fill) ? rows->last_share * (double)v : 0.0;
            weight += IS_VALID(v, fill) ? rows->last_share : 0.0;
        }
        sums[k] = sum;
        weights[k] = weight;
    }
}

#if T_SMALL
typedef T NAME(Eight) __attribute__((vector_size(8 * sizeof(T))));

/* Eight pixels, 0 for fill, and -1 for each that is. */
INLINE EightInts NAME(eight)(const T *p, int32_t fill, EightInts *lost) {
#if LANES == 8
    /* The compiler widens these by halves. */
    __m128i pixels = sizeof(T) == 2 ? _mm_loadu_si128((const void *)p)
                                    : _mm_loadl_epi64((const void *)p);
    EightInts wide = (EightInts)(sizeof(T) == 2
                                     ? T_UNSIGNED ? _mm256_cvtepu16_epi32(pixels)
                                                  : _mm256_cvtepi16_epi32(pixels)
                                 : T_UNSIGNED ? _mm256_cvtepu8_epi32(pixels)
                                              : _mm256_cvtepi8_epi32(pixels));
#else
    NAME(Eight) pixels;
    memcpy(&pixels, p, sizeof pixels);
    EightInts wide = __builtin_convertvector(pixels, EightInts);
#endif
    *lost = wide == fill;
    return wide & ~*lost;
}

/* `columns` of eight, of which one half or both count, weighed by their shares: whole numbers are exact in any order, so that inner
   rows are summed as such. */
INLINE void NAME(eight_columns)(const T *p, int64_t stride, const NAME(Rows) * rows, T fill,
                                const Quad *shares, int halves, Quad *total, Quad *weight) {
    EightInts inner = {0}, top = {0}, low = {0}, lost, lost_above = {0}, lost_under = {0};
    EightInts found = (EightInts){0} + (int32_t)(rows->count - rows->last - rows->first);
    for (int64_t r = rows->first; r < rows->count - rows->last; r++) {
        inner += NAME(eight)(p + r * stride, fill, &lost);
        found += lost;
    }
    if (rows->first) top = NAME(eight)(p, fill, &lost_above);
    if (rows->last) low = NAME(eight)(p + (rows->count - 1) * stride, fill, &lost_under);
    const EightInts found_above = lost_above + (int32_t)rows->first;
    const EightInts found_under = lost_under + (int32_t)rows->last;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        if (half == halves) return;
        Quad sums = quad_of(inner, half) + rows->first_share * quad_of(top, half);
        Quad weights = quad_of(found, half) + rows->first_share * quad_of(found_above, half);
        sums = sums + rows->last_share * quad_of(low, half);
        weights = weights + rows->last_share * quad_of(found_under, half);
        *total = *total + shares[half] * sums;
        *weight = *weight + shares[half] * weights;
    }
}

#endif

/* GDAL's average: the box between the first and the third corner, its edge pixels by their share.
   Columns are summed in four lanes from the box's first. */
static T NAME(gdal_average)(const Job *job, int64_t band, const Window *window,
                            const NAME(Around) * around, Scratch *scratch, const Box *within,
                            int *failed) {
    T fill = *(const T *)job->fill;
    const Box box = window->box, seen = common_box(box, *within);
    if (seen.r0 >= seen.r1 || seen.c0 >= seen.c1) return fill;
    NAME(View) view;
    int found = NAME(see)(job, band, around, seen, scratch, &view);
    if (found <= 0) {
        *failed |= found < 0;
        return fill;
    }
    const NAME(Rows) rows = {seen.r0 == box.r0, seen.r1 == box.r1 && box.r1 - box.r0 > 1,
                             window->first_row, window->last_row, seen.r1 - seen.r0};
    Quad total = {0}, weight = {0};
    for (int64_t k = (seen.c0 - box.c0) / 4 * 4; k < seen.c1 - box.c0; k += 4) {
        const int64_t first = greater(box.c0 + k, seen.c0), last = lesser(box.c0 + k + 4, seen.c1);
        double sums[4] = {0}, weights[4] = {0};
        NAME(columns)(view.data + (first - seen.c0), view.stride, &rows, last - first, fill,
                      sums + (first - box.c0 - k), weights + (first - box.c0 - k));
        const Quad shares = column_shares(window, k);
        total = total + shares * quad_at(sums);
        weight = weight + shares * quad_at(weights);
    }
    const double weights = sum4(weight);
    return weights > 0 ? NAME(finish_real)(sum4(total) / weights, fill) : fill;
}

#if T_SMALL
/* Whether stretches of eight may be loaded anywhere in what is at hand. */
static int NAME(is_loadable)(const NAME(Around) * around) {
    const int64_t height = around->box.r1 - around->box.r0, width = around->box.c1 - around->box.c0;
    return around->view.data && height < 30000 &&
           (height - 1) * around->view.stride + width + 8 <= around->view.room;
}

/* Ask for `count` rows from this one on, which windows below will have. */
INLINE void NAME(prefetch_below)(const NAME(Around) * around, int32_t row, int32_t col,
                                 int32_t count) {
    const int64_t stride = around->view.stride;
    int64_t at = row * stride + col;
    for (int32_t r = 0; r < count && at < around->view.room; r++, at += stride)
        __builtin_prefetch(around->view.data + at);
}

/* GDAL's average of a window that lies in what is at hand: the sums of its valid pixels and of their
   shares. */
INLINE void NAME(gdal_wide)(const Window *window, const NAME(Around) * around, T fill, double *sum,
                            double *weights) {
    const Box box = window->box;
    const int64_t stride = around->view.stride;
    const T *p = around->view.data + (box.r0 - around->box.r0) * stride + (box.c0 - around->box.c0);
    const NAME(Rows) rows = {1, box.r1 - box.r0 > 1, window->first_row, window->last_row,
                             box.r1 - box.r0};
    Quad total = {0}, weight = {0};
    for (int64_t k = 0; k < box.c1 - box.c0; k += 8) {
        const int halves = box.c1 - box.c0 - k > 4 ? 2 : 1;
        Quad shares[2] = {column_shares(window, k)};
        if (halves == 2) shares[1] = column_shares(window, k + 4);
        NAME(eight_columns)(p + k, stride, &rows, fill, shares, halves, &total, &weight);
    }
    *sum = sum4(total);
    *weights = sum4(weight);
}

typedef T NAME(Four) __attribute__((vector_size(4 * sizeof(T))));

/* Four pixels, 0 for fill, and -1 for each that is. */
INLINE FourInts NAME(four)(const T *p, int32_t fill, FourInts *lost) {
    NAME(Four) pixels;
    memcpy(&pixels, p, sizeof pixels);
    const FourInts wide = __builtin_convertvector(pixels, FourInts);
    *lost = wide == fill;
    return wide & ~*lost;
}

/* `gdal_wide` of a window of at most four columns and at least two rows, the j-th. */
INLINE void NAME(gdal_narrow)(const NAME(Around) * around, const Narrow *windows, int j, T fill,
                              double *sum, double *weights) {
    const int64_t stride = around->view.stride;
    const T *p = around->view.data + windows->row[j] * stride + windows->col[j];
    const Quad first_share = (Quad){0} + windows->share[1][j];
    const Quad last_share = (Quad){0} + windows->share[3][j];
    const int32_t inner_rows = windows->height[j] - 2;
    FourInts inner = {0}, found = (FourInts){0} + inner_rows, lost_above, lost_under;
    const FourInts top = NAME(four)(p, fill, &lost_above);
    for (int32_t r = 0; r < inner_rows; r++) {
        FourInts lost;
        p += stride;
        inner += NAME(four)(p, fill, &lost);
        found += lost;
    }
    const FourInts low = NAME(four)(p + stride, fill, &lost_under);
    Quad total = reals4(inner) + first_share * reals4(top);
    Quad weight = reals4(found) + first_share * reals4(lost_above + 1);
    total = total + last_share * reals4(low);
    weight = weight + last_share * reals4(lost_under + 1);
    const Quad shares = narrow_shares(windows, j);
    sum4_of_both(sum, weights, shares * total, shares * weight);
}

/* `finish_real` of four sums and their weights, fill where there is no weight. */
INLINE void NAME(finish_four)(T *out, const double *sums, const double *weights, T fill) {
    const Quad weight = quad_at(weights), magic = (Quad){0} + 6755399441055744.0;
    Quad value = quad_at(sums) / weight;
    value = most4(value, (Quad){0} + (double)T_MIN);
    value = least4(value, (Quad){0} + (double)T_MAX);
    value = (value + magic) - magic;
    const T aside = fill == (T)T_MIN ? (T)(fill + 1) : (T)(fill - 1);
    const Quad fills = (Quad){0} + (double)fill;
    value = chosen4(value == fills, (Quad){0} + (double)aside, value);
    value = chosen4(weight > 0.0, value, fills);
    const FourInts made = ints4(value);
    for (int k = 0; k < 4; k++) out[k] = (T)made[k];
}

/* GDAL's average of up to PIECE pixels of a row whose windows are not all outside the tiles. */
static void NAME(gdal_piece)(const Job *job, int64_t band, T *out, const double *upper,
                             const double *lower, int count, const NAME(Around) * around,
                             Scratch *scratch, const Box *within, int *failed) {
    const T fill = *(const T *)job->fill;
    const Held held = held_of(around->box);
    double sums[PIECE], weights[PIECE];
    T made[PIECE];
    uint32_t alone = 0; /* pixels whose windows are not all at hand */
    Narrow windows;
    narrow_piece(&windows, upper, lower, count, &held);
    for (int j = 0; j < count; j++) {
        const int inside = !windows.beyond[j];
        if (inside && j % 8 == 0)
            NAME(prefetch_below)(around, windows.row[j] + windows.height[j], windows.col[j],
                                 windows.height[j]);
        if (inside && windows.height[j] > 1 && windows.width[j] <= 4) {
            NAME(gdal_narrow)(around, &windows, j, fill, sums + j, weights + j);
        } else if (inside) {
            const Window window = window_between(upper + 2 * j, lower + 2 * j + 2);
            NAME(gdal_wide)(&window, around, fill, sums + j, weights + j);
        } else {
            alone |= UINT32_C(1) << j;
            sums[j] = weights[j] = 0;
        }
    }
    for (int j = count; j % 4; j++) sums[j] = weights[j] = 0;
    for (int j = 0; j < count; j += 4) NAME(finish_four)(made + j, sums + j, weights + j, fill);
    memcpy(out, made, (size_t)count * sizeof(T));
    for (int j = 0; alone; j++, alone >>= 1)
        if (alone & 1) {
            const Window window = window_between(upper + 2 * j, lower + 2 * j + 2);
            out[j] = NAME(gdal_average)(job, band, &window, around, scratch, within, failed);
        }
}
#endif

/* GDAL's average of one row of pixels whose corners need no care; `above` and `below` are the ranges
   of its pieces' upper and lower corners. */
static void NAME(gdal_row)(const Job *job, int64_t band, T *out, const double *upper,
                           const double *lower, int64_t count, const Range *above,
                           const Range *below, const NAME(Around) * around, Scratch *scratch,
                           const Box *within, int *failed) {
#if T_SMALL
    const int loadable = NAME(is_loadable)(around);
#endif
    for (int64_t j = 0; j < count; j += PIECE) {
        const int piece = (int)lesser(PIECE, count - j);
        const Range range = joint_range(above[j / PIECE], below[j / PIECE]);
        if (!area(range_box(range, *within))) {
            NAME(fill_run)(out + j, piece, *(const T *)job->fill);
            continue;
        }
#if T_SMALL
        if (loadable) {
            NAME(gdal_piece)(job, band, out + j, upper + 2 * j, lower + 2 * j, piece, around,
                             scratch, within, failed);
            continue;
        }
#endif
        for (int64_t k = j; k < j + piece; k++) {
            const Window window = window_between(upper + 2 * k, lower + 2 * k + 2);
            out[k] = NAME(gdal_average)(job, band, &window, around, scratch, within, failed);
        }
    }
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
static T NAME(by_area)(const Job *job, int64_t band, const double *q, const NAME(Around) * around,
                       WindowWork *work, const Box *within, int *failed) {
    T fill = *(const T *)job->fill;
    Box box = {(int64_t)floor(fmin(fmin(q[1], q[3]), fmin(q[5], q[7]))),
               (int64_t)ceil(fmax(fmax(q[1], q[3]), fmax(q[5], q[7]))),
               (int64_t)floor(fmin(fmin(q[0], q[2]), fmin(q[4], q[6]))),
               (int64_t)ceil(fmax(fmax(q[0], q[2]), fmax(q[4], q[6])))};
    box = common_box(box, *within);
    if (box.r0 >= box.r1 || box.c0 >= box.c1) return fill;
    int64_t width = box.c1 - box.c0, height = box.r1 - box.r0;
    NAME(View) view;
    int seen = NAME(see)(job, band, around, box, &work->pixels, &view);
    if (seen <= 0) {
        *failed |= seen < 0;
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
            T v = view.data[r * view.stride + c];
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
                       double scale_y, const NAME(Around) * around, WindowWork *work, const Box *within,
                       int *failed) {
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
    Box seen = common_box(box, *within);
    if (seen.r0 >= seen.r1 || seen.c0 >= seen.c1) return fill;
    NAME(View) view;
    int found = NAME(see)(job, band, around, seen, &work->pixels, &view);
    double *across =
        scratch_of(&work->shares, (size_t)(seen.c1 - seen.c0) * sizeof(double));
    if (found <= 0 || !across) {
        *failed |= found < 0 || !across;
        return fill;
    }
    for (int64_t c = seen.c0; c < seen.c1; c++)
        across[c - seen.c0] = kernel_weight(job->method, ((double)(c - (int64_t)x) - dx) / scale_x);
    double total = 0, weight = 0;
    for (int64_t r = seen.r0; r < seen.r1; r++) {
        const T *p = view.data + (r - seen.r0) * view.stride;
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
INLINE T NAME(window)(const Job *job, int64_t band, const double *at, double *q, double half,
                      const NAME(Around) * around, WindowWork *work, const Box *within, int *failed) {
    T fill = *(const T *)job->fill;
    if (!prepare_corners(job, at, half, q)) return fill;
    if (job->method == GDAL_AVERAGE) {
        const Window window = window_between(q, q + 4);
        return NAME(gdal_average)(job, band, &window, around, &work->pixels, within, failed);
    }
    if (job->method > CUBIC) return NAME(by_area)(job, band, q, around, work, within, failed);
    double scale_x = job->scale_x, scale_y = job->scale_y;
    if (scale_x <= 0) local_scale(q, &scale_x, &scale_y);
    scale_x = scale_x > WIDENING ? scale_x : 1.0;
    scale_y = scale_y > WIDENING ? scale_y : 1.0;
    int64_t hint = 0;
    if (scale_x == 1.0 && scale_y == 1.0)
        return NAME(single)(job, job->method, band, at[0], at[1], &hint);
    return NAME(widened)(job, band, at, scale_x, scale_y, around, work, within, failed);
}

/* Rows [first, last), columns [left, right) of a block, all bands; places have their pitches.
   Centres may be NULL where corners do: for GDAL's average of plain rows. */
static int NAME(window_rows)(const Job *job, const double *centres, int64_t centre_pitch,
                             const double *corners, int64_t corner_pitch, int64_t row0,
                             int64_t col0, int first, int last, int left, int right,
                             WindowWork *work) {
    T fill = *(const T *)job->fill;
    int failed = 0;
    Range pieces[2][PIECES];
    Range below = row_range(pieces[first & 1], corners + 2 * (first * corner_pitch + left),
                            right - left);
    for (int i = first; i < last && !failed; i++) {
        const double *upper = corners + 2 * (i * corner_pitch + left);
        const double *lower = upper + 2 * corner_pitch;
        const Range above = below;
        const Range *upper_pieces = pieces[i & 1], *lower_pieces = pieces[(i + 1) & 1];
        below = row_range(pieces[(i + 1) & 1], lower, right - left);
        Range range = joint_range(above, below);
        const double half = half_turn(job, range);
        if (centres) widen_range(&range, centres + 2 * (i * centre_pitch + left), right - left);
        const int plain = is_plain(range, half);
        for (int64_t band = 0; band < job->bands; band++) {
            T *out = (T *)job->out[band] + (row0 + i) * job->out_stride + col0;
            const Box within = tiles_box(job, band);
            NAME(Around) around = {range_box(range, within), {NULL, 0, 0}};
            if (job->method > CUBIC && around.box.r0 >= around.box.r1 &&
                range.high[0] - range.low[0] <= half) {
                NAME(fill_run)(out + left, right - left, fill);
                continue;
            }
            if (area(around.box) > 0 && area(around.box) <= LARGEST_BOX &&
                NAME(view)(job, band, around.box, &work->row, &around.view) < 0)
                return -1;
            if (plain && job->method == GDAL_AVERAGE) {
                NAME(gdal_row)(job, band, out + left, upper, lower, right - left, upper_pieces,
                               lower_pieces, &around, &work->pixels, &within, &failed);
                continue;
            }
            for (int j = left; j < right; j++) {
                const double *a = corners + 2 * (i * corner_pitch + j), *b = a + 2 * corner_pitch;
                double q[8] = {a[0], a[1], a[2], a[3], b[2], b[3], b[0], b[1]};
                out[j] = NAME(window)(job, band, centres + 2 * (i * centre_pitch + j), q, half,
                                      &around, work, &within, &failed);
            }
        }
    }
    return failed ? -1 : 0;
}

static void NAME(window_fill)(const Job *job, int64_t row0, int64_t col0, int first, int last,
                              int left, int right) {
    for (int64_t band = 0; band < job->bands; band++)
        for (int i = first; i < last; i++) {
            T *out = (T *)job->out[band] + (row0 + i) * job->out_stride + col0;
            NAME(fill_run)(out + left, right - left, *(const T *)job->fill);
        }
}

static const WindowType NAME(window_type) = {NAME(window_rows), NAME(window_fill)};

#undef IS_VALID
