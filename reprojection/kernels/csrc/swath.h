/* What the swath search shares: footprints, targets, and the candidates of a block of targets. */
#ifndef SWATHMILL_SWATH_H
#define SWATHMILL_SWATH_H

#include "common.h"

#define BLOCK_COLS 32
#define BLOCK_ROWS_MAX 64
#define TILE 256 /* targets along the side of a block */
#define SPLIT_POINTS 400000 /* candidates beyond which a block of targets is halved */
/* Targets are searched eight at once, two rows of four. */
#define GROUP_ROWS 2
#define GROUP_COLS 4
#define LANES (GROUP_ROWS * GROUP_COLS)

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
} Targets;

typedef struct {
    int64_t r0, r1, c0, c1;
} Part; /* of the targets: rows [r0, r1), columns [c0, c1) */

/* The plane a block of targets is seen in: u and v across, h towards the eye, from the point on the
 * sphere below the middle of the block. */
typedef struct {
    double e1[3], e2[3], axis[3];
    double u_low, u_high, v_low, v_high;
    double bound; /* no place in view is farther from 0: rounding to 24 bits goes by it */
} View;

typedef struct {
    int64_t capacity, blocks_capacity, starts_capacity, coarse_capacity;
    int32_t *blocks; /* blocks of footprints within reach */
    /* Candidates as found: where they are seen, squared radius, index in the swath, bin. */
    float *u, *v, *h;
    double *r2;
    int32_t *id, *bin;
    /* Candidates by bin; `from` is the place in the arrays above. */
    float *bu, *bv, *bh;
    int32_t *from, *starts;
    float *coarse, *bound;
    /* Targets of the block by groups, NaN where there is none. */
    float tu[TILE * TILE], tv[TILE * TILE], th[TILE * TILE];
} Scratch;

/* Unit vectors of n points in degrees, or of n points of one latitude when `step` is 0.
 * NaN where latitude or longitude is NaN or outside [-90, 90] and [-360, 360]. */
void sw_unit(const double *lat, const double *lon, int64_t step, int64_t n, double *x, double *y,
             double *z);

/* Sines and cosines of meridians or parallels, in arrays of the caller's; `miss` is NaN where there
 * is none. */
typedef struct {
    double *sine, *cosine, *miss;
} Circles;

#define MOST_LAT 90.0
#define MOST_LON 360.0

/* The circles of n latitudes or longitudes, each `step` elements after the one before, which exist
 * up to `most` degrees. */
void find_circles(const double *degrees, int64_t step, int64_t n, double most, const Circles *of);

/* What `sw_unit` gives for n points of the parallel `line`, from the meridian `first` on. */
void along_parallel(const Circles *parallels, int64_t line, const Circles *meridians, int64_t first,
                    int64_t n, double *x, double *y, double *z);

/* Make room for n elements; 0 when there is no memory. */
int grow(void *array, int64_t n, size_t size);

/* Search the n candidates in `k` for each of a part of the targets, which `k` holds by groups.
 * Writes indices of the swath or -1; returns 0 when there is no memory. */
int search_candidates(const Swath *s, const Targets *t, const Part *part, const View *w, Scratch *k,
                      int64_t n, int32_t *out);

#endif
