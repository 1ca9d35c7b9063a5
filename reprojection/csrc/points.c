/* Nearest, bilinear and cubic: a chunk of a target grid, all bands, by blocks of 128 x 128. */
#include "points.h"

/* Source pixels a copied box may hold; larger ones are read pixel by pixel. */
#define LARGEST_BOX (1 << 22)

/* A part of a bicubic block whose segments are known. */
typedef struct {
    Segments segments;
    Box box;
} Prepared;

typedef struct {
    Segments segments;
    Prepared prepared[2]; /* the part at hand, and the next, whose pixels are on their way */
    double places[BLOCK * BLOCK * 2];
    Scratch scratch;
} Workspace;

/* Segments of rows of a row plan; NaN rows get none. Returns whether all rows are narrow. */
CLONES static int row_segments(Segments *out, const Job *job, int64_t span, int64_t row0,
                               int64_t number_col, int first, int last) {
    int narrow = 1;
    for (int i = first; i < last; i++) {
        int64_t row = row0 + i;
        double at = job->span_at[span * job->height + row];
        double step = job->span_step[span * job->height + row];
        narrow &= fabs(step) <= WIDE_STEP;
        for (int s = 0; s < SEGMENTS; s++) {
            int n = i * SEGMENTS + s;
            double middle = (double)(number_col + s * SEGMENT + SEGMENT / 2);
            out->value[0][n] = at + step * middle;
            out->slope[0][n] = (float)step;
            out->bend[0][n] = 0.0f;
            out->value[1][n] = job->rows[row];
        }
    }
    return narrow;
}

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

/* Places of rows [first, last) of a block by its bicubic in float64, `count` to a row. The table
   holds the weights of pixel centres (128) or edges (129). */
CLONES void bicubic_places(double *places, const double *table, int count, const double *nodes,
                           int64_t node_stride, int first, int last) {
    for (int i = first; i < last; i++) {
        const double *w = table + 4 * i;
        double c[4][2];
        for (int k = 0; k < 4; k++)
            for (int channel = 0; channel < 2; channel++) {
                const double *n = nodes + 2 * k + channel;
                double sum = w[0] * n[0];
                sum = sum + w[1] * n[node_stride];
                sum = sum + w[2] * n[2 * node_stride];
                sum = sum + w[3] * n[3 * node_stride];
                c[k][channel] = sum;
            }
        for (int j = 0; j < count; j++) {
            const double *v = table + 4 * j;
            for (int channel = 0; channel < 2; channel++) {
                double sum = v[0] * c[0][channel];
                sum = sum + v[1] * c[1][channel];
                sum = sum + v[2] * c[2][channel];
                sum = sum + v[3] * c[3][channel];
                places[2 * (i * count + j) + channel] = sum;
            }
        }
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

static int64_t area(Box box) { return (box.r1 - box.r0) * (box.c1 - box.c0); }

static Box grown(Box box, int64_t by) {
    Box wide = {box.r0 - by, box.r1 + by, box.c0 - by, box.c1 + by};
    return wide;
}

/* Where a block lies: the grid row and column of its first pixel, and its part of the chunk. */
typedef struct {
    int64_t row0, col0, number_col;
    int first, last, left, right;
} Part;

/* A box that certainly holds every place of rows of a block of a row plan. */
static Box rows_box(const Job *job, int64_t span, Part part, int first, int last) {
    double low[2] = {1e300, 1e300}, high[2] = {-1e300, -1e300};
    for (int i = first; i < last; i++) {
        int64_t row = part.row0 + i;
        double at = job->span_at[span * job->height + row];
        double step = job->span_step[span * job->height + row];
        double west = at + step * (double)part.number_col;
        double east = at + step * (double)(part.number_col + BLOCK);
        low[0] = fmin(low[0], fmin(west, east));
        high[0] = fmax(high[0], fmax(west, east));
        low[1] = fmin(low[1], job->rows[row]);
        high[1] = fmax(high[1], job->rows[row]);
    }
    Box box = {(int64_t)floor(low[1]) - 1, (int64_t)floor(high[1]) + 2, (int64_t)floor(low[0]) - 1,
               (int64_t)floor(high[0]) + 2};
    return box;
}

static int row_part(const Job *job, const PixelType *type, Workspace *work, Part part) {
    for (int64_t span = 0; span < job->spans; span++) {
        int left = (int)greater(part.left, job->span_start[span] - part.col0);
        int right = (int)lesser(part.right, job->span_stop[span] - part.col0);
        if (left >= right) continue;
        int first = part.first, last = part.last;
        while (first < last && job->rows[part.row0 + first] != job->rows[part.row0 + first])
            first++;
        while (last > first && job->rows[part.row0 + last - 1] != job->rows[part.row0 + last - 1])
            last--;
        for (int64_t band = 0; band < job->bands; band++) {
            type->fill_rows(job, band, part.row0, part.col0, part.first, first, left, right);
            type->fill_rows(job, band, part.row0, part.col0, last, part.last, left, right);
        }
        if (first >= last) continue;
        int narrow = row_segments(&work->segments, job, span, part.row0, part.number_col, first,
                                  last);
        Box box = grown(rows_box(job, span, part, first, last), 2);
        if (narrow && area(box) <= LARGEST_BOX) {
            if (type->segment_block(job, &work->segments, box, &work->scratch, part.row0,
                                    part.col0, first, last, left, right))
                return -1;
        } else {
            places_of_rows(work->places, job, span, part.row0, part.number_col, first, last);
            for (int64_t band = 0; band < job->bands; band++)
                type->single_rows(job, band, work->places, BLOCK, part.row0, part.col0, first,
                                  last, left, right);
        }
        for (int i = first; i < last; i++) {
            int low = (int)lesser(greater(job->first[part.row0 + i] - part.col0, left), right);
            int high = (int)greater(lesser(job->last[part.row0 + i] - part.col0, right), left);
            for (int64_t band = 0; band < job->bands; band++) {
                type->fill_rows(job, band, part.row0, part.col0, i, i + 1, left, low);
                type->fill_rows(job, band, part.row0, part.col0, i, i + 1, high, right);
            }
        }
    }
    return 0;
}

/* Segments of a part of a block, with its pixels asked for. */
static void prepare(const Job *job, const PixelType *type, Prepared *prepared, Part part,
                    int64_t block_row, int64_t block_col) {
    int64_t i = block_row - job->block_row, j = block_col - job->block_col;
    if (job->kinds[i * job->across + j] != CUBIC_BLOCK) return;
    int64_t stride = 2 * (job->across + 3);
    type->block_segments(&prepared->segments, job, job->nodes + i * stride + 2 * j, stride,
                         part.first, part.last, &prepared->box, part.left / SEGMENT,
                         (part.right + SEGMENT - 1) / SEGMENT);
    prepared->box = grown(prepared->box, 2);
    if (area(prepared->box) <= LARGEST_BOX) type->prefetch(job, prepared->box);
}

static int block_part(const Job *job, const PixelType *type, Workspace *work,
                      const Prepared *prepared, Part part, int64_t block_row, int64_t block_col,
                      const double *listed) {
    int64_t i = block_row - job->block_row, j = block_col - job->block_col;
    int kind = job->kinds[i * job->across + j];
    int64_t node_stride = 2 * (job->across + 3);
    const double *nodes = job->nodes + i * node_stride + 2 * j;
    const double *places = listed;
    if (kind == CUBIC_BLOCK) {
        if (area(prepared->box) <= LARGEST_BOX)
            return type->segment_block(job, &prepared->segments, prepared->box, &work->scratch,
                                       part.row0, part.col0, part.first, part.last, part.left,
                                       part.right);
        places_of_segments(work->places, &prepared->segments, part.first, part.last);
        places = work->places;
    } else if (kind == WIDE_BLOCK) {
        bicubic_places(work->places, job->centre_weights, BLOCK, nodes, node_stride, part.first,
                       part.last);
        places = work->places;
    }
    for (int64_t band = 0; band < job->bands; band++)
        type->single_rows(job, band, places, BLOCK, part.row0, part.col0, part.first, part.last,
                          part.left, part.right);
    return 0;
}

/* The part of block (i, j) that lies in a strip of rows and in the chunk. */
static Part part_of(const Job *job, int64_t i, int64_t j, int strip) {
    Part part;
    part.row0 = i * BLOCK - job->number_row;
    part.col0 = j * BLOCK - job->number_col;
    part.number_col = j * BLOCK;
    part.first = (int)greater(strip, job->top - part.row0);
    part.last = (int)lesser(strip + STRIP, job->bottom - part.row0);
    part.left = (int)greater(0, job->left - part.col0);
    part.right = (int)lesser(BLOCK, job->right - part.col0);
    return part;
}

/* One strip of rows of all blocks [left, right] of a row of blocks; by_window and listed are of
   its first block. */
static int strip_of_blocks(const Job *job, const PixelType *type, Workspace *work, int64_t i,
                           int64_t left, int64_t right, int strip, int64_t n) {
    if (!job->rowwise)
        prepare(job, type, &work->prepared[0], part_of(job, i, left, strip), i, left);
    for (int64_t j = left; j <= right; j++) {
        Part part = part_of(job, i, j, strip);
        Prepared *prepared = &work->prepared[(j - left) & 1];
        if (!job->rowwise && j < right)
            prepare(job, type, &work->prepared[(j - left + 1) & 1],
                    part_of(job, i, j + 1, strip), i, j + 1);
        if (job->by_window[n + j - left]) continue;
        if (job->rowwise ? row_part(job, type, work, part)
                         : block_part(job, type, work, prepared, part, i, j,
                                      job->listed[n + j - left]))
            return -1;
    }
    return 0;
}

static int run(const Job *job, const PixelType *type) {
    Workspace *work = malloc(sizeof(Workspace));
    if (!work) return -1;
    work->scratch.data = NULL;
    work->scratch.size = 0;
    int failed = 0;
    int64_t first = floor_div(job->number_row + job->top, BLOCK);
    int64_t last = floor_div(job->number_row + job->bottom - 1, BLOCK);
    int64_t left = floor_div(job->number_col + job->left, BLOCK);
    int64_t right = floor_div(job->number_col + job->right - 1, BLOCK);
    /* Strips of a few rows, so that source rows are read in long runs. */
    for (int64_t i = first; i <= last; i++)
        for (int strip = 0; strip < BLOCK && !failed; strip += STRIP) {
            Part part = part_of(job, i, left, strip);
            if (part.first < part.last)
                failed = strip_of_blocks(job, type, work, i, left, right, strip,
                                         (i - first) * (right - left + 1));
        }
    free(work->scratch.data);
    free(work);
    return failed;
}

/* Warp one chunk; 0, -1 without memory, -2 for a pixel type that is not known. */
EXPORT int32_t swathmill_warp_points(const Job *job, int32_t pixel_type) {
    const PixelType *type = NULL;
    switch (instruction_set()) {
#if WIDER_VECTORS
    case AVX512:
        type = points_avx512(pixel_type);
        break;
    case AVX2:
        type = points_avx2(pixel_type);
        break;
#endif
    default:
        type = points_base(pixel_type);
    }
    return type ? run(job, type) : -2;
}
