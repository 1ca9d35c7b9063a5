/* The point kernels of one pixel type, and where to find them for one instruction set. */
#ifndef SWATHMILL_POINTS_H
#define SWATHMILL_POINTS_H

#include "job.h"
#include "types.h"

typedef struct {
    int (*part)(const Job *, const Segments *, int64_t, Box, Scratch *, Part);
    void (*single_rows)(const Job *, int64_t, const double *, int64_t, int64_t, int64_t, int, int,
                        int, int);
    void (*fill_rows)(const Job *, int64_t, int64_t, int64_t, int, int, int, int);
    void (*block_segments)(Segments *, const Job *, const double *, int64_t, int, int, Box *, int,
                           int);
} PixelType;

const PixelType *points_base(int32_t pixel_type);
const PixelType *points_avx2(int32_t pixel_type);
const PixelType *points_avx512(int32_t pixel_type);

#endif
