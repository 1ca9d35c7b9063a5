/* Nearest, bilinear and cubic: a chunk of a target grid, all bands, by blocks of 128 x 128. */
#include "points.h"

typedef struct {
    Segments segments;
    double places[BLOCK * BLOCK * 2];
    Scratch scratch[BANDS_AT_ONCE];
} Workspace;

/* Columns of a row plan made at a time: its rows are read in long runs. */
enum { WIDE_PART = 8 * BLOCK };

/* The place on a segment exactly as the quick kernels have it. */
static const float PLACES[SEGMENT] = {-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f,
                                      0.5f,  1.5f,  2.5f,  3.5f,  4.5f,  5.5f,  6.5f,  7.5f};

static double segment_place(double value, float slope, float bend, int k) {
    double base = floor(value) - BIAS;
    float at = (float)(value - base) + PLACES[k] * (slope + PLACES[k] * bend);
    return base + (double)at;
}

static void places_of_segments(double *places, const Segments *segments, int first, int last) {
    for (int i = first; i < last; i++)
        for (int j = 0; j < BLOCK; j++)
            for (int channel = 0; channel < 2; channel++) {
                int n = i * SEGMENTS + j / SEGMENT;
                places[2 * (i * BLOCK + j) + channel] =
                    segment_place(segments->value[channel][n], segments->slope[channel][n],
                                  segments->bend[channel][n], j % SEGMENT);
            }
}

static void places_of_rows(double *places, const Job *job, int64_t span, int64_t row0,
                           int64_t number_col, int first, int last) {
    for (int i = first; i < last; i++) {
        int64_t row = row0 + i;
        double at = job->span_at[span * job->height + row];
        double step = job->span_step[span * job->height + row];
        for (int j = 0; j < BLOCK; j++) {
            double *place = places + 2 * (i * BLOCK + j);
            int64_t number = number_col + j;
            double middle = (double)(number_col + j / SEGMENT * SEGMENT + SEGMENT / 2);
            place[0] = fabs(step) <= WIDE_STEP
                           ? segment_place(at + step * middle, (float)step, 0.0f, j % SEGMENT)
                           : at + step * ((double)number + 0.5);
            place[1] = job->rows[row];
        }
    }
}

static Box grown(Box box, int64_t by) {
    Box wide = {box.r0 - by, box.r1 + by, box.c0 - by, box.c1 + by};
    return wide;
}

/* A bound and a number: the lesser, and the greater, of them; the bound where that is NaN. */
static double below(double bound, double number) { return number < bound ? number : bound; }
static double above(double bound, double number) { return number > bound ? number : bound; }

/* A box that certainly holds every place of a part of a row plan. Returns whether its rows are
   narrow: by segments. */
static int rows_box(const Job *job, int64_t span, Part part, Box *box) {
    double low[2] = {1e300, 1e300}, high[2] = {-1e300, -1e300};
    int narrow = 1;
    for (int i = part.first; i < part.last; i++) {
        int64_t row = part.row0 + i;
        double at = job->span_at[span * job->height + row];
        double step = job->span_step[span * job->height + row];
        double west = at + step * (double)(part.number_col + part.left / SEGMENT * SEGMENT);
        double east = at + step * (double)(part.number_col +
                                           (part.right + SEGMENT - 1) / SEGMENT * SEGMENT);
        narrow &= fabs(step) <= WIDE_STEP;
        low[0] = below(below(low[0], west), east);
        high[0] = above(above(high[0], west), east);
        low[1] = below(low[1], job->rows[row]);
        high[1] = above(high[1], job->rows[row]);
    }
    Box around = {(int64_t)floor(low[1]) - 1, (int64_t)floor(high[1]) + 2,
                  (int64_t)floor(low[0]) - 1, (int64_t)floor(high[0]) + 2};
    *box = grown(around, 2);
    return narrow;
}

/* A part of a row plan pixel by pixel, a block at a time. */
static void single_part(const Job *job, const PixelType *type, Workspace *work, int64_t span,
                        Part part) {
    for (int base = part.left / BLOCK * BLOCK; base < part.right; base += BLOCK) {
        places_of_rows(work->places, job, span, part.row0, part.number_col + base, part.first,
                       part.last);
        for (int64_t band = 0; band < job->bands; band++)
            type->single_rows(job, band, work->places, BLOCK, part.row0, part.col0 + base,
                              part.first, part.last, (int)greater(part.left - base, 0),
                              (int)lesser(part.right - base, BLOCK));
    }
}

/* Fill the columns of a part that lie off the domain. */
static void fill_ends(const Job *job, const PixelType *type, Part part) {
    for (int i = part.first; i < part.last; i++) {
        int64_t row = part.row0 + i;
        int low = (int)lesser(greater(job->first[row] - part.col0, part.left), part.right);
        int high = (int)greater(lesser(job->last[row] - part.col0, part.right), part.left);
        if (low == part.left && high == part.right) continue;
        for (int64_t band = 0; band < job->bands; band++) {
            type->fill_rows(job, band, part.row0, part.col0, i, i + 1, part.left, low);
            type->fill_rows(job, band, part.row0, part.col0, i, i + 1, high, part.right);
        }
    }
}

static int row_part(const Job *job, const PixelType *type, Workspace *work, Part whole) {
    for (int64_t span = 0; span < job->spans; span++) {
        Part part = whole;
        part.left = (int)greater(whole.left, job->span_start[span] - whole.col0);
        part.right = (int)lesser(whole.right, job->span_stop[span] - whole.col0);
        if (part.left >= part.right) continue;
        const double *rows = job->rows + part.row0;
        while (part.first < part.last && rows[part.first] != rows[part.first]) part.first++;
        while (part.last > part.first && rows[part.last - 1] != rows[part.last - 1]) part.last--;
        for (int64_t band = 0; band < job->bands; band++) {
            type->fill_rows(job, band, part.row0, part.col0, whole.first, part.first, part.left,
                            part.right);
            type->fill_rows(job, band, part.row0, part.col0, part.last, whole.last, part.left,
                            part.right);
        }
        if (part.first >= part.last) continue;
        Box box;
        if (rows_box(job, span, part, &box) && area(box) <= LARGEST_BOX) {
            if (type->part(job, NULL, span, box, work->scratch, part)) return -1;
        } else {
            single_part(job, type, work, span, part);
        }
        fill_ends(job, type, part);
    }
    return 0;
}

/* A part of block (i, j); `listed` are its places where it is so. */
static int block_part(const Job *job, const PixelType *type, Workspace *work, Part part,
                      int64_t block_row, int64_t block_col, const double *listed) {
    int64_t i = block_row - job->block_row, j = block_col - job->block_col;
    int kind = job->kinds[i * job->across + j];
    const double *places = listed;
    if (kind == CUBIC_BLOCK) {
        int64_t stride = 2 * (job->across + 3);
        Box box;
        type->block_segments(&work->segments, job, job->nodes + i * stride + 2 * j, stride,
                             part.first, part.last, &box, part.left / SEGMENT,
                             (part.right + SEGMENT - 1) / SEGMENT);
        box = grown(box, 2);
        if (area(box) <= LARGEST_BOX)
            return type->part(job, &work->segments, 0, box, work->scratch, part);
        places_of_segments(work->places, &work->segments, part.first, part.last);
        places = work->places;
    } else if (kind != LISTED_BLOCK) {
        block_places(work->places, job, i, j, 0, part.first, part.last);
        places = work->places;
    }
    for (int64_t band = 0; band < job->bands; band++)
        type->single_rows(job, band, places, BLOCK, part.row0, part.col0, part.first, part.last,
                          part.left, part.right);
    return 0;
}

/* Rows made at a time, so that source rows are read in long runs: more where they are aslant. */
static int strip_rows(const Job *job) { return job->rowwise ? 16 : 32; }

/* The part of `wide` columns from block (i, j) on that lies in a strip of rows and in the chunk. */
static Part part_of(const Job *job, int64_t i, int64_t j, int strip, int wide) {
    Part part;
    part.row0 = i * BLOCK - job->number_row;
    part.col0 = j * BLOCK - job->number_col;
    part.number_col = j * BLOCK;
    part.first = (int)greater(strip, job->top - part.row0);
    part.last = (int)lesser(strip + strip_rows(job), job->bottom - part.row0);
    part.left = (int)greater(0, job->left - part.col0);
    part.right = (int)lesser(wide, job->right - part.col0);
    return part;
}

/* One strip of rows of all blocks [left, right] of a row of blocks; by_window and listed are of
   its first block. */
static int strip_of_blocks(const Job *job, const PixelType *type, Workspace *work, int64_t i,
                           int64_t left, int64_t right, int strip, int64_t n) {
    for (int64_t j = left; j <= right; j++, n++)
        if (!job->by_window[n] && block_part(job, type, work, part_of(job, i, j, strip, BLOCK), i,
                                             j, job->listed[n]))
            return -1;
    return 0;
}

/* The same for a row plan, whose blocks in one row are alike. */
static int strip_of_rows(const Job *job, const PixelType *type, Workspace *work, int64_t i,
                         int64_t left, int64_t right, int strip, int64_t n) {
    if (job->by_window[n]) return 0;
    for (int64_t j = left; j <= right; j += WIDE_PART / BLOCK)
        if (row_part(job, type, work, part_of(job, i, j, strip, WIDE_PART))) return -1;
    return 0;
}

static int run(const Job *job, const PixelType *type) {
    Workspace *work = malloc(sizeof(Workspace));
    if (!work) return -1;
    memset(work->scratch, 0, sizeof work->scratch);
    int failed = 0;
    int64_t first = floor_div(job->number_row + job->top, BLOCK);
    int64_t last = floor_div(job->number_row + job->bottom - 1, BLOCK);
    int64_t left = floor_div(job->number_col + job->left, BLOCK);
    int64_t right = floor_div(job->number_col + job->right - 1, BLOCK);
    for (int64_t i = first; i <= last; i++)
        for (int strip = 0; strip < BLOCK && !failed; strip += strip_rows(job)) {
            Part part = part_of(job, i, left, strip, BLOCK);
            if (part.first < part.last)
                failed = (job->rowwise ? strip_of_rows : strip_of_blocks)(
                    job, type, work, i, left, right, strip, (i - first) * (right - left + 1));
        }
    for (int n = 0; n < BANDS_AT_ONCE; n++) free(work->scratch[n].data);
    free(work);
    return failed;
}

/* The kernels of a pixel type for this CPU; wider vectors serve those types that gain by them. */
static const PixelType *kernels_of(int32_t pixel_type) {
    const PixelType *type = NULL;
#if WIDER_VECTORS && MADE_FOR != 1
    if (instruction_set() == AVX512) type = points_avx512(pixel_type);
#endif
#if WIDER_VECTORS
    if (!type && instruction_set() != BASE) type = points_avx2(pixel_type);
#endif
    return type ? type : points_base(pixel_type);
}

/* Warp one chunk; 0, -1 without memory, -2 for a pixel type that is not known. */
EXPORT int32_t swathmill_warp_points(const Job *job, int32_t pixel_type) {
    const PixelType *type = kernels_of(pixel_type);
    return type ? run(job, type) : -2;
}
