/* What a warp kernel is told: the tiles of one raster, the places of target pixels, and where the
   result goes. Mirrors reprojection/warp/c_kernels.py. Pixel coordinates count source pixels from the
   source space's corner; pixel (row, col) covers [row, row + 1) x [col, col + 1). */
#ifndef SWATHMILL_JOB_H
#define SWATHMILL_JOB_H

#include "common.h"

enum { BLOCK = 128, SEGMENT = 16, SEGMENTS = BLOCK / SEGMENT };
enum { BANDS_AT_ONCE = 8 };
enum { ORDERED_ROOM = 16384 }; /* pixels of a box that may be kept as floats */
enum { VIEW_SLACK = 64 }; /* elements that may be read beyond a copied box */
enum { CUBIC_BLOCK = 1, LISTED_BLOCK = 2, WIDE_BLOCK = 3, FINE_BLOCK = 4 };
enum { FINE = 32, PARTS = BLOCK / FINE, FINE_NODES = PARTS + 3 };
enum { NEAREST, BILINEAR, CUBIC, AVERAGE, GDAL_AVERAGE, MODE, MINIMUM, MAXIMUM, MEDIAN };

#define BIAS 32.0
#define WIDE_STEP 3.0

typedef struct {
    const void *data;
    int64_t stride; /* elements between rows */
    int64_t row, col, height, width;
} Tile;

typedef struct {
    int64_t method, bands, tiles, nearest_rule, rowwise;
    const Tile *tile; /* [bands][tiles] */
    void *const *out; /* [bands], each the first pixel of the target grid */
    int64_t out_stride;
    const void *fill; /* one pixel */
    int64_t top, bottom, left, right;   /* the chunk, in pixels of the target grid */
    int64_t number_row, number_col;     /* number of the grid's first pixel */
    /* Row plans; arrays hold one value per row of the target grid. */
    const double *rows;
    const int64_t *first, *last;
    int64_t spans;
    const int64_t *span_start, *span_stop;
    const double *span_at, *span_step; /* [spans][height] */
    int64_t height;
    /* Block plans. */
    const uint8_t *kinds;
    const double *nodes; /* [down + 3][across + 3][2] */
    int64_t block_row, block_col, across;
    const double *centre_weights;  /* [128][4] */
    const double *edge_weights;    /* [129][4] */
    const double *segment_weights; /* [3][4][8] */
    const double *fine_centre_weights; /* [32][4] */
    const double *fine_edge_weights;   /* [33][4] */
    const double *fine;                /* [fine blocks][7][7][2] */
    const int64_t *fine_index;         /* [down][across]: of a fine block, where it is in `fine` */
    const double *const *listed;   /* per block of the chunk, NULL where not listed: [128][128][2] */
    const double *const *listed_edges; /* the same for corners: [129][129][2] */
    const uint8_t *by_window; /* per block of the chunk: whether window kernels make it */
    /* Windows of row plans: places of the whole chunk. */
    const double *centres; /* [rows][cols][2] */
    const double *corners; /* [rows + 1][cols + 1][2] */
    double scale_x, scale_y; /* fixed kernel widening, or 0 */
    double turn_columns, turn_angle, turn_step; /* columns once around the Earth at a row:
                                                   columns * cos(angle + row * step), or 0 */
} Job;

typedef struct {
    int64_t r0, r1, c0, c1;
} Box;

/* A part of a block, or of a row of blocks: the grid row and column of its first pixel, the number
   of that column, and rows [first, last), columns [left, right) of it. */
typedef struct {
    int64_t row0, col0, number_col;
    int first, last, left, right;
} Part;

typedef struct {
    void *data;
    size_t size;
} Scratch;

/* At least `size` bytes, or NULL. */
static inline void *scratch_of(Scratch *scratch, size_t size) {
    if (scratch->size < size) {
        free(scratch->data);
        scratch->data = malloc(size);
        scratch->size = scratch->data ? size : 0;
    }
    return scratch->data;
}

static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t area(Box box) { return (box.r1 - box.r0) * (box.c1 - box.c0); }

/* Source pixels a copied box may hold; larger ones are read pixel by pixel. */
#define LARGEST_BOX (1 << 22)

static inline int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Places of rows [first, last) of a block that is not listed, by its bicubics in float64: of pixel
   centres, 128 to a row, or of edges, 129 to a row. */
void block_places(double *places, const Job *job, int64_t i, int64_t j, int edges, int first,
                  int last);

/* The segments of one block: value, slope and half bend of column (0) and row (1). */
typedef struct {
    double value[2][BLOCK * SEGMENTS];
    float slope[2][BLOCK * SEGMENTS];
    float bend[2][BLOCK * SEGMENTS];
} Segments;

#define INLINE static inline __attribute__((always_inline))

#endif
